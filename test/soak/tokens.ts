/** Tokens of a soak: a few good ones at any time, each revoked at some time, and those that were. */
import crypto from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { SignJWT } from 'jose'
import { systemClock } from '../../proxy/clock.ts'
import { openRevocations } from '../../proxy/state/revocations.ts'

/** One of them. */
export interface SoakToken {
  readonly text: string
  readonly id: string
  /** When its revocation was written; milliseconds since the epoch. */
  revokedMs?: number
}

/** A pool of them. */
export interface SoakTokens {
  readonly issuers: readonly [{ readonly issuer: string; readonly algorithms: ['ES256']; readonly jwks: string }]
  readonly revoked: number
  readonly good: () => SoakToken
  /** One that was revoked; `undefined` while there is none. */
  readonly bad: () => SoakToken | undefined
  /** Revokes one by the state folder, and puts a new one in its place. */
  readonly revokeOne: () => Promise<void>
  readonly close: () => void
}

const ISSUER = 'https://soak.example.test'
const GOOD = 20
/** Of those that were revoked, the last so many are tried again. */
const BAD = 20

/** Keys are made in `folder`; revocations go to the state folder, as another process's. */
export async function soakTokens(folder: string, state: string): Promise<SoakTokens> {
  const { privateKey, publicKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const jwk = { ...publicKey.export({ format: 'jwk' }), kid: 'soak', alg: 'ES256', use: 'sig' }
  const jwks = path.join(folder, 'jwks.json')
  fs.writeFileSync(jwks, JSON.stringify({ keys: [jwk] }))
  const revocations = await openRevocations(path.join(state, 'revocations'), systemClock)
  let count = 0
  const mint = async (): Promise<SoakToken> => {
    const now = Math.floor(Date.now() / 1000)
    const id = `t${count++}`
    const claims = { iss: ISSUER, aud: 'sallyport', iat: now - 5, exp: now + 6 * 3600, jti: id, sub: 'soak' }
    const text = await new SignJWT({ ...claims, egress: { kind: 'allow-all' } })
      .setProtectedHeader({ alg: 'ES256', kid: 'soak', typ: 'egress+jwt' })
      .sign(privateKey)
    return { text, id }
  }
  const good = await Promise.all(Array.from({ length: GOOD }, mint))
  const bad: SoakToken[] = []
  const any = <T>(list: readonly T[]): T | undefined => list[Math.floor(Math.random() * list.length)]
  return {
    issuers: [{ issuer: ISSUER, algorithms: ['ES256'], jwks }],
    get revoked() {
      return count - GOOD
    },
    good: () => any(good)!,
    bad: () => any(bad),
    revokeOne: async () => {
      const at = Math.floor(Math.random() * good.length)
      const [token] = good.splice(at, 1, await mint())
      await revocations.revoke({ tokenId: token!.id })
      token!.revokedMs = Date.now()
      bad.push(token!)
      if (bad.length > BAD) bad.shift()
    },
    close: () => revocations.close(),
  }
}
