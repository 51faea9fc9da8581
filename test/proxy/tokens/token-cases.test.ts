/** Every case of `test/cases/token.json`, at the level of the identifier. */
import { mkdtempSync, rmSync } from 'node:fs'
import { type Server, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { decideName, parseAuthority, parseNetworkRules } from '../../../policies/index.ts'
import { readProxyAuthorization, readSocksPassword } from '../../../proxy/tokens/credentials.ts'
import { type Identified, type Identifier, createIdentifier } from '../../../proxy/tokens/identify.ts'
import type { Identity } from '../../../proxy/tokens/identity.ts'
import {
  type SentCredentials,
  type TokenCase,
  buildToken,
  createCaseKeys,
  expectedReasons,
  sendToken,
  tokenCases,
  writeCaseIssuers,
} from './token-cases.ts'

const keys = createCaseKeys()
const folder = mkdtempSync(join(tmpdir(), 'token-cases-'))
const client = { address: '127.0.0.1', port: 40_000 }
const notRevoked = { isRevoked: () => false, isCurrent: () => true }
let identifier: Identifier
let trap: Server
let trapUrl: string
const asked: string[] = []

beforeAll(async () => {
  identifier = createIdentifier({ issuers: writeCaseIssuers(keys, folder), revocations: notRevoked })
  trap = createServer((request, response) => {
    asked.push(request.url ?? '')
    response.end('{"keys":[]}')
  })
  await new Promise<void>((resolve) => trap.listen(0, '127.0.0.1', resolve))
  trapUrl = `http://127.0.0.1:${(trap.address() as AddressInfo).port}`
})

afterAll(() => {
  identifier.close()
  trap.close()
  rmSync(folder, { recursive: true })
})

describe('token.json', () => {
  test.each(tokenCases.cases.map((one) => [one.name, one] as const))('%s', async (_name, tokenCase) => {
    const token = buildToken(tokenCase, keys, trapUrl)
    const first = await identify(sendToken(tokenCase, token))
    judge(tokenCase, first)
    // Asked a second time, it comes from memory, and must be the same.
    expect(await identify(sendToken(tokenCase, token))).toEqual(first)
  })

  test('nothing that a header names was fetched', () => {
    expect(tokenCases.cases.filter((one) => one.trap)).not.toHaveLength(0)
    expect(asked).toEqual([])
  })
})

function identify(sent: SentCredentials): Identified | Promise<Identified> {
  const credentials =
    sent.kind === 'http' ? readProxyAuthorization(sent.proxyAuthorization) : readSocksPassword(sent.user, sent.password)
  return identifier.identify(credentials, client)
}

function judge(tokenCase: TokenCase, outcome: Identified): void {
  const reasons = expectedReasons(tokenCase)
  if (!outcome.ok) {
    expect(reasons, outcome.detail).toContain(outcome.reason)
    return
  }
  const decided = decide(outcome.identity)
  if (tokenCase.accepted) expect(decided).toBe('allow')
  else expect([tokenCase.denied]).toContain(decided)
}

function decide(identity: Identity): string {
  const target = parseAuthority(tokenCases.target)
  const network = parseNetworkRules({})
  if (!target.ok || !network.ok) throw new Error('the target of the cases is malformed')
  const layers = [
    { name: 'ceiling', policy: { kind: 'allow-all' }, mode: 'enforce' },
    { name: 'claim', policy: identity.claim, mode: 'enforce' },
  ] as const
  const outcome = decideName({ layers, version: 'cases' }, target.value, network.value)
  return outcome.effective === 'deny' ? outcome.reason : 'allow'
}
