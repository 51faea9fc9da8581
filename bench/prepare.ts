/** Makes what a bench run needs in a folder: keys, tokens, a configuration. Prints nothing secret; the folder is the caller's to delete. */
import crypto from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { SignJWT } from 'jose'
import { stringify } from 'yaml'

export interface BenchSetUp {
  /** A configuration file. */
  readonly config: string
  /** `Proxy-Authorization` values, one a line. */
  readonly tokens: string
}

/** `entries` is the length of the allowlist in each token; the one that matches is the last. */
export async function prepareBench(
  folder: string,
  options: { readonly port: number; readonly tokens: number; readonly entries: number },
): Promise<BenchSetUp> {
  const { privateKey, publicKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' })
  fs.writeFileSync(
    path.join(folder, 'jwks.json'),
    JSON.stringify({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'bench', alg: 'ES256', use: 'sig' }] }),
  )
  const filler = Array.from({ length: options.entries - 1 }, (_none, i) => `h${i}.x`)
  const now = Math.floor(Date.now() / 1000)
  const lines: string[] = []
  for (let i = 0; i < options.tokens; i++) {
    const claims = {
      iss: 'https://bench.example.test',
      aud: 'sallyport',
      iat: now,
      exp: now + 7200,
      jti: `bench-${i}`,
      sub: `sbx_${i}`,
      tenant: 'bench',
      egress: { kind: 'static', allowedHosts: [...filler, '127.0.0.0/8:*'] },
    }
    lines.push(
      `Bearer ${await new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid: 'bench', typ: 'egress+jwt' }).sign(privateKey)}`,
    )
  }
  const tokens = path.join(folder, 'tokens.txt')
  fs.writeFileSync(tokens, `${lines.join('\n')}\n`)
  const config = path.join(folder, 'sallyport.yaml')
  fs.writeFileSync(
    config,
    stringify({
      // With the admin listener, since metrics are counted only then.
      listen: { proxy: `127.0.0.1:${options.port}`, admin: `unix:${path.join(folder, 'admin')}` },
      state: './state',
      log: { level: 'warn' },
      issuers: [{ issuer: 'https://bench.example.test', algorithms: ['ES256'], jwks: './jwks.json' }],
      policy: {
        ceiling: { kind: 'allow-all' },
        deniedHosts: ['metadata.example.test'],
        tenants: { bench: { kind: 'static', allowedHosts: ['127.0.0.0/8:*', '*.example.test', '@github'] } },
      },
      network: { allowPrivate: ['127.0.0.0/8'] },
      limits: { tunnels: 50_000, perSandbox: { tunnels: 50_000, newPerSecond: 100_000, bytesPerDay: '100TiB' } },
      audit: { onFailure: 'deny' },
    }),
  )
  return { config, tokens }
}
