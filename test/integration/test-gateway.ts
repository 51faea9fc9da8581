/** A whole gateway on loopback with an issuer of its own, for tests. Everything it makes is gone after `close()`. */
import crypto from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { SignJWT, type JWTPayload } from 'jose'
import { createGateway, type Gateway, type GatewayOptions } from '../../proxy/gateway.ts'
import { parseConfig } from '../../proxy/config/parse.ts'
import type { Config, ConfigInput } from '../../proxy/config/schema.ts'

export const ISSUER = 'https://issuer.example.test'

export interface TestGateway {
  readonly gateway: Gateway
  /** A configuration like that of the start, with `document` laid over, for `gateway.reload`. */
  config(document: ConfigInput): Config
  readonly folder: string
  /** Of the first proxy listener, on 127.0.0.1. */
  readonly port: number
  readonly adminPort: number
  /** A signed ES256 token; `claims` are laid over sensible ones, `undefined` takes one away. */
  token(claims?: Record<string, unknown>): Promise<string>
  /** A short HS256 token of `urn:s`, for SOCKS5. */
  shortToken(claims?: Record<string, unknown>): Promise<string>
  /** All lines of the audit log so far. */
  audit(): Record<string, unknown>[]
  /** Waits (bounded) until a line satisfies `test`. */
  auditLine(test: (line: Record<string, unknown>) => boolean): Promise<Record<string, unknown>>
  close(): Promise<void>
}

/** `document` is laid over a configuration that listens on free ports and knows the two test issuers; `create` makes the gateway. */
export async function startTestGateway(
  document: ConfigInput = {},
  options: Omit<GatewayOptions, 'config'> = {},
  create: (options: GatewayOptions) => Promise<Gateway> = createGateway,
): Promise<TestGateway> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-test-'))
  try {
    return await startIn(folder, document, options, create)
  } catch (error) {
    fs.rmSync(folder, { recursive: true, force: true })
    throw error
  }
}

async function startIn(
  folder: string,
  document: ConfigInput,
  options: Omit<GatewayOptions, 'config'>,
  create: (options: GatewayOptions) => Promise<Gateway>,
): Promise<TestGateway> {
  const pair = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const jwk = { ...pair.publicKey.export({ format: 'jwk' }), kid: 'test-1', alg: 'ES256', use: 'sig' }
  fs.writeFileSync(path.join(folder, 'jwks.json'), JSON.stringify({ keys: [jwk] }))
  const secret = Buffer.from(crypto.randomBytes(32).toString('base64url'))
  fs.writeFileSync(path.join(folder, 'secret'), secret, { mode: 0o600 })

  const parse = (over: ConfigInput): Config => {
    const whole = { ...document, ...over }
    const parsed = parseConfig(
      {
        state: path.join(folder, 'state'),
        log: { level: 'silent' },
        ...whole,
        issuers: [...testIssuers(folder), ...(whole.issuers ?? [])],
        listen: { proxy: '127.0.0.1:0', admin: '127.0.0.1:0', ...whole.listen },
      },
      { folder },
    )
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.faults, null, 2))
    return parsed.config
  }
  const config = parse({})
  const gateway = await create({ config, machineSets: { sets: { npm: [], apt: [] }, notes: [] }, ...options })
  const listening = await gateway.listen().catch(async (error: unknown) => {
    await gateway.close()
    throw error
  })
  const first = listening.proxy.find((address) => address.kind === 'tcp')
  const sign = (
    claims: Record<string, unknown>,
    iss: string,
    header: { alg: string; kid?: string },
    key: crypto.KeyObject,
  ) => {
    const now = Math.floor(Date.now() / 1000)
    const payload = {
      iss,
      aud: 'sallyport',
      iat: now - 5,
      exp: now + 600,
      jti: crypto.randomUUID(),
      sub: 'sbx_test',
      ...claims,
    }
    return new SignJWT(JSON.parse(JSON.stringify(payload)) as JWTPayload)
      .setProtectedHeader({ typ: 'egress+jwt', ...header })
      .sign(key)
  }
  const audit = () =>
    fs
      .readdirSync(config.audit.path)
      .filter((name) => name.endsWith('.jsonl'))
      .sort()
      .flatMap((name) => fs.readFileSync(path.join(config.audit.path, name), 'utf8').split('\n'))
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
  return {
    gateway,
    config: parse,
    folder,
    port: first?.kind === 'tcp' ? first.port : 0,
    adminPort: listening.admin?.kind === 'tcp' ? listening.admin.port : 0,
    token: (claims = {}) => sign(claims, ISSUER, { alg: 'ES256', kid: 'test-1' }, pair.privateKey),
    shortToken: (claims = {}) =>
      sign(
        { sub: undefined, jti: crypto.randomBytes(3).toString('hex'), ...claims },
        'urn:s',
        { alg: 'HS256' },
        crypto.createSecretKey(secret),
      ),
    audit,
    auditLine: async (test) => {
      for (let tries = 0; tries < 300; tries++) {
        const found = audit().find(test)
        if (found) return found
        await new Promise((resolve) => setTimeout(resolve, 10))
      }
      throw new Error(
        `no such audit line; the last ones are\n${audit()
          .slice(-5)
          .map((line) => JSON.stringify(line))
          .join('\n')}`,
      )
    },
    close: async () => {
      await gateway.close()
      fs.rmSync(folder, { recursive: true, force: true })
    },
  }
}

function testIssuers(folder: string): NonNullable<ConfigInput['issuers']> {
  return [
    { issuer: ISSUER, algorithms: ['ES256'], jwks: path.join(folder, 'jwks.json') },
    { issuer: 'urn:s', algorithms: ['HS256'], secretFile: path.join(folder, 'secret') },
  ]
}
