/** Revocations across processes and restarts, and what becomes of them when the folder is in trouble. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Clock } from '../../../proxy/clock.ts'
import { systemClock } from '../../../proxy/clock.ts'
import { MAX_RULES, RevocationRules, createRevocation } from '../../../proxy/state/revocation-rules.ts'
import { type Revocations, openRevocations } from '../../../proxy/state/revocations.ts'
import type { Identity } from '../../../proxy/tokens/identity.ts'

const PROCESS = fileURLToPath(new URL('revoke-process.ts', import.meta.url))
const HOUR = 3_600_000
let folder: string
const opened: Revocations[] = []

beforeEach(() => {
  folder = join(mkdtempSync(join(tmpdir(), 'revocations-')), 'revocations')
})

afterEach(() => {
  for (const revocations of opened.splice(0)) revocations.close()
  rmSync(join(folder, '..'), { recursive: true })
})

async function open(clock: Clock = systemClock, onFault?: (message: string) => void): Promise<Revocations> {
  const revocations = await openRevocations(folder, clock, onFault)
  opened.push(revocations)
  return revocations
}

function identity(more: Partial<Identity> = {}): Identity {
  return {
    tokenId: 'jti-1',
    issuer: 'https://own.issuer.test',
    keyId: 'k',
    sandbox: 'sbx_1',
    tenant: 'acme',
    issuedAtMs: Date.now() - 5_000,
    expiresAtMs: Date.now() + HOUR,
    claim: { kind: 'allow-all' },
    binding: undefined,
    ...more,
  }
}

function changed(revocations: Revocations): Promise<void> {
  return new Promise((resolve) => {
    const stop = revocations.onChange(() => {
      stop()
      resolve()
    })
  })
}

async function revokeElsewhere(kind: string, ...values: readonly string[]): Promise<void> {
  const child = spawn(process.execPath, [PROCESS, folder, kind, ...values], { stdio: ['ignore', 'ignore', 'inherit'] })
  const [code] = (await once(child, 'exit')) as [number | null]
  expect(code).toBe(0)
}

describe('a revocation', () => {
  test('by another process is seen within a second of its being done, and again after a restart', async () => {
    const gateway = await open()
    const seen = changed(gateway).then(() => performance.now())
    await revokeElsewhere('token', 'jti-1')
    const done = performance.now()
    expect((await seen) - done).toBeLessThan(1_000)
    expect(gateway.isRevoked(identity())).toBe(true)
    expect(gateway.isRevoked(identity({ tokenId: 'jti-2' }))).toBe(false)
    gateway.close()
    expect((await open()).isRevoked(identity())).toBe(true)
  })

  test('is in force at once for whoever made it', async () => {
    const revocations = await open()
    let told = 0
    revocations.onChange(() => told++)
    await revocations.revoke({ tokenId: 'jti-1' })
    expect(revocations.isRevoked(identity())).toBe(true)
    expect(told).toBe(1)
    expect(revocations.list()).toMatchObject([{ kind: 'token', value: 'jti-1' }])
  })

  test('of a sandbox or tenant concerns every token until now, also of a clock that is 30 s ahead, and later ones not', async () => {
    const revocations = await open()
    await revocations.revoke({ sandbox: 'sbx_1' })
    await revocations.revoke({ tenant: 'evil' })
    const now = Date.now()
    expect(revocations.isRevoked(identity())).toBe(true)
    expect(revocations.isRevoked(identity({ issuedAtMs: now + 29_000 }))).toBe(true)
    expect(revocations.isRevoked(identity({ issuedAtMs: now + 31_000 }))).toBe(false)
    expect(revocations.isRevoked(identity({ sandbox: 'sbx_2' }))).toBe(false)
    expect(revocations.isRevoked(identity({ sandbox: undefined, tenant: 'evil' }))).toBe(true)
    expect(revocations.isRevoked(identity({ sandbox: undefined, tenant: undefined }))).toBe(false)
  })

  test('of those issued before an instant leaves the others alone; the wider of two stays', async () => {
    const revocations = await open()
    const issuedBeforeMs = Date.now() - 60_000
    await revocations.revoke({ tenant: 'acme', issuedBeforeMs })
    await revocations.revoke({ tenant: 'acme', issuedBeforeMs: issuedBeforeMs - HOUR })
    expect(revocations.isRevoked(identity({ issuedAtMs: issuedBeforeMs - 1 }))).toBe(true)
    expect(revocations.isRevoked(identity({ issuedAtMs: issuedBeforeMs }))).toBe(false)
  })

  test('by many processes at the same time loses none', async () => {
    const gateway = await open()
    const names = Array.from({ length: 4 }, (_none, child) => Array.from({ length: 10 }, (_no, n) => `t-${child}-${n}`))
    await Promise.all(names.map((own) => revokeElsewhere('token', ...own)))
    while (gateway.list().length < 40) await changed(gateway)
    for (const tokenId of names.flat()) expect(gateway.isRevoked(identity({ tokenId }))).toBe(true)
  })

  test('keeps any name that a claim may hold', async () => {
    const tokenId = 'line\nfeed "quotes" \u2028 Ω 𝄞'.padEnd(512, 'é')
    await (await open()).revoke({ tokenId })
    expect((await open()).isRevoked(identity({ tokenId }))).toBe(true)
    await expect((await open()).revoke({ tokenId: '' })).rejects.toThrow(TypeError)
    await expect((await open()).revoke({ tenant: 'x', issuedBeforeMs: NaN })).rejects.toThrow(TypeError)
  })

  test('no longer counts when no token that it concerns can live, and stays in force all the same', async () => {
    let passed = 0
    const clock = { wallMs: () => Date.now() + passed, monotonicMs: () => performance.now() }
    const revocations = await open(clock)
    await revocations.revoke({ tokenId: 'jti-1' })
    passed = 23.9 * HOUR
    expect((await open(clock)).list()).toHaveLength(1)
    passed = 24.1 * HOUR
    const later = await open(clock)
    expect(later.list()).toEqual([])
    expect(later.isRevoked(identity())).toBe(true)
    await later.revoke({ tokenId: 'jti-2' })
    expect(later.list().map((rule) => rule.value)).toEqual(['jti-2'])
  })

  test('in the past of its file is deleted once a process has itself seen so much time pass', async () => {
    let wall = 0
    let monotonic = 0
    const clock = { wallMs: () => Date.now() + wall, monotonicMs: () => performance.now() + monotonic }
    const revocations = await open(clock)
    await revocations.revoke({ tokenId: 'jti-1' })
    const look = () => revocations.revoke({ tokenId: `look-${wall}` })
    wall = 6 * 24 * HOUR
    monotonic = 24 * HOUR
    await look()
    expect(readdirSync(folder)).toHaveLength(2)
    monotonic = 26 * HOUR
    await look()
    expect(readdirSync(folder)).toHaveLength(1)
    expect(revocations.isRevoked(identity())).toBe(true)
  })

  test('outlives a clock that goes far ahead, with restarts in the meantime, and comes back', async () => {
    let ahead = 0
    const clock = { wallMs: () => Date.now() + ahead, monotonicMs: () => performance.now() }
    const stays = await open(clock)
    await stays.revoke({ tokenId: 'jti-1' })
    await stays.revoke({ sandbox: 'sbx_9' })
    for (const days of [2, 30, 4000]) {
      ahead = days * 24 * HOUR
      await stays.revoke({ tokenId: `then-${days}` })
      const restarted = await open(clock)
      for (const revocations of [stays, restarted]) {
        expect(revocations.isRevoked(identity())).toBe(true)
        expect(revocations.isRevoked(identity({ tokenId: 'x', sandbox: 'sbx_9' }))).toBe(true)
      }
      restarted.close()
    }
    ahead = 0
    const back = await open(clock)
    expect(back.isRevoked(identity())).toBe(true)
    expect(back.isRevoked(identity({ tokenId: 'then-30' }))).toBe(true)
    expect(back.isRevoked(identity({ tokenId: 'x', sandbox: 'sbx_9' }))).toBe(true)
    expect(back.list().map((rule) => rule.value)).toContain('jti-1')
  })

  test('of a clock that is far behind is in force when the clock is put right', async () => {
    let ahead = -1000 * 24 * HOUR
    const clock = { wallMs: () => Date.now() + ahead, monotonicMs: () => performance.now() }
    const revocations = await open(clock)
    await revocations.revoke({ tokenId: 'jti-1' })
    ahead = 0
    expect(revocations.isRevoked(identity())).toBe(true)
    expect((await open(clock)).isRevoked(identity())).toBe(true)
  })

  test('old files are bounded where no process lives for a day', async () => {
    mkdirSync(folder, { mode: 0o700 })
    for (let day = 0; day < 40; day++) {
      const at = Date.now() - (50 - day) * 24 * HOUR
      const line = JSON.stringify(createRevocation({ tokenId: `t-${day}` }, at))
      writeFileSync(join(folder, `${new Date(at).toISOString().slice(0, 10)}.jsonl`), `${line}\n`, { mode: 0o600 })
    }
    await open()
    const kept = readdirSync(folder).sort()
    expect(kept).toHaveLength(30)
    expect(kept[0]).toBe(`${new Date(Date.now() - 40 * 24 * HOUR).toISOString().slice(0, 10)}.jsonl`)
  })

  test('that has lapsed is held to identities that never expire, as of a bound listener, if they are older', () => {
    const rules = new RevocationRules()
    const now = Date.now()
    rules.add(createRevocation({ sandbox: 'sbx_1' }, now))
    rules.add(createRevocation({ tokenId: 'other' }, now))
    rules.lapse(now + 30 * HOUR)
    expect(rules.size).toBe(0)
    expect(rules.isRevoked(identity({ expiresAtMs: Infinity }))).toBe(true)
    expect(rules.isRevoked(identity({ expiresAtMs: Infinity, issuedAtMs: now + HOUR }))).toBe(false)
    expect(rules.isRevoked(identity({ expiresAtMs: Infinity, sandbox: 'sbx_2', tokenId: 'other' }))).toBe(true)
    rules.lapse(now)
    expect(rules.size).toBe(2)
  })

  test('that has lapsed makes room for others, the oldest first', () => {
    const rules = new RevocationRules()
    const now = Date.now()
    for (let index = 0; index <= MAX_RULES; index++) rules.add(createRevocation({ tokenId: `t-${index}` }, now + index))
    rules.lapse(now + 30 * HOUR)
    expect(rules.size).toBe(0)
    expect(rules.isRevoked(identity({ tokenId: 't-0' }))).toBe(false)
    expect(rules.isRevoked(identity({ tokenId: 't-1' }))).toBe(true)
    expect(rules.isRevoked(identity({ tokenId: `t-${MAX_RULES}` }))).toBe(true)
  })
})

describe('a folder in trouble:', () => {
  const today = (): string => join(folder, `${new Date().toISOString().slice(0, 10)}.jsonl`)

  test('a line that a crash left unfinished spoils nothing that came before or comes after', async () => {
    const gateway = await open()
    await gateway.revoke({ tokenId: 'before' })
    appendFileSync(today(), '\n{"kind":"token","value":"tor')
    const seen = changed(gateway)
    await revokeElsewhere('token', 'after')
    await seen
    expect(gateway.list().map((rule) => rule.value)).toEqual(['before', 'after'])
    const faults: string[] = []
    const restarted = await open(systemClock, (message) => faults.push(message))
    expect(restarted.list().map((rule) => rule.value)).toEqual(['before', 'after'])
    expect(faults).toEqual([expect.stringMatching(/hold 1 lines that are none$/)])
  })

  test('lines that are none are told and skipped', async () => {
    mkdirSync(folder, { mode: 0o700 })
    const good = JSON.stringify(createRevocation({ tokenId: 'good' }, Date.now()))
    const bad = ['{}', '[]', 'null', 'x'.repeat(100_000), good.replace('token', 'tokens'), good.replace('}', ',"x":1}')]
    writeFileSync(today(), [...bad, good, ''].join('\n'), { mode: 0o600 })
    const faults: string[] = []
    const revocations = await open(systemClock, (message) => faults.push(message))
    expect(revocations.list().map((rule) => rule.value)).toEqual(['good'])
    expect(faults).toEqual([expect.stringMatching(/hold 6 lines/)])
  })

  test('a file larger than what is read at once is read whole', async () => {
    mkdirSync(folder, { mode: 0o700 })
    const lines = Array.from({ length: 5_000 }, (_none, index) =>
      JSON.stringify(createRevocation({ tokenId: `Ω-${index}-${'é'.repeat(index % 40)}` }, Date.now())),
    )
    writeFileSync(today(), `${lines.join('\n')}\n`, { mode: 0o600 })
    const revocations = await open()
    expect(revocations.list()).toHaveLength(5_000)
    expect(revocations.list().map((rule) => JSON.stringify(rule))).toEqual(lines)
  })

  test('deleted while in use: what was known stays, and the next revocation makes it anew', async () => {
    const gateway = await open()
    await gateway.revoke({ tokenId: 'jti-1' })
    rmSync(folder, { recursive: true })
    const seen = changed(gateway)
    await revokeElsewhere('token', 'jti-2')
    await seen
    expect(gateway.list().map((rule) => rule.value)).toEqual(['jti-1', 'jti-2'])
    expect(gateway.isCurrent()).toBe(true)
  })

  test('unreadable: after five seconds nobody is to be let out, until it can be read again', async () => {
    let passed = 0
    const clock = { wallMs: () => Date.now(), monotonicMs: () => performance.now() + passed }
    const faults: string[] = []
    const gateway = await open(clock, (message) => faults.push(message))
    await gateway.revoke({ tokenId: 'jti-1' })
    // A folder where a file was: nothing that even the superuser can read.
    renameSync(today(), `${today()}.aside`)
    mkdirSync(today())
    expect(gateway.isCurrent()).toBe(true)
    passed = 5_001
    expect(gateway.isCurrent()).toBe(false)
    expect(gateway.isRevoked(identity())).toBe(true)
    expect(faults).toEqual([expect.stringMatching(/can't be read \(it is a folder\)$/)])
    rmSync(today(), { recursive: true })
    renameSync(`${today()}.aside`, today())
    expect(gateway.isCurrent()).toBe(true)
  })

  test('unreadable at the start: no start', async () => {
    mkdirSync(today(), { recursive: true, mode: 0o700 })
    await expect(open()).rejects.toMatchObject({ code: 'SALLYPORT_STATE_UNUSABLE' })
  })

  test('not writable: the revocation fails aloud', async () => {
    const gateway = await open()
    mkdirSync(today())
    await expect(gateway.revoke({ tokenId: 'x' })).rejects.toMatchObject({ code: 'SALLYPORT_STATE_UNUSABLE' })
    rmSync(today(), { recursive: true })
  })

  test('files are the owner’s alone', async () => {
    await (await open()).revoke({ tokenId: 'jti-1' })
    expect(statSync(folder).mode & 0o777).toBe(0o700)
    expect(statSync(today()).mode & 0o777).toBe(0o600)
    expect(readFileSync(today(), 'utf8')).toMatch(/^\n\{"kind":"token","value":"jti-1"/)
    chmodSync(folder, 0o777)
    await expect(open()).rejects.toMatchObject({ code: 'SALLYPORT_STATE_UNUSABLE' })
  })
})
