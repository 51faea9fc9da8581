/** The state folder: whose it may be, and handles that only their bearers can open. */
import {
  chmodSync,
  chownSync,
  mkdtempSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { SallyportError } from '../../../policies/index.ts'
import { openFolder, writeWhole } from '../../../proxy/state/folder.ts'
import { type State, openState } from '../../../proxy/state/state.ts'
import { createIdentifier } from '../../../proxy/tokens/identify.ts'
import { manualClock, issuerOf, newKey, outcomeOf, present, tokenOf } from '../tokens/issuing.ts'

let folder: string
const opened: State[] = []

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'state-'))
})

afterEach(() => {
  for (const state of opened.splice(0)) state.close()
  rmSync(folder, { recursive: true })
})

async function open(path: string, options: Parameters<typeof openState>[1] = {}): Promise<State> {
  const state = await openState(path, options)
  opened.push(state)
  return state
}

async function refusal(path: string): Promise<string> {
  try {
    await openFolder(path)
  } catch (error) {
    if (error instanceof SallyportError && error.code === 'SALLYPORT_STATE_UNUSABLE') return error.message
    throw error
  }
  return 'accepted'
}

describe('the folder', () => {
  test('is made for the owner alone, also where its parents are missing', async () => {
    const path = join(folder, 'a', 'b')
    await open(path)
    expect(statSync(path).mode & 0o777).toBe(0o700)
    expect(readdirSync(path).sort()).toEqual(['handles', 'policies', 'revocations'])
    expect(statSync(join(path, 'handles')).mode & 0o777).toBe(0o700)
  })

  test('that others may read is fine, one that they may write in is not', async () => {
    chmodSync(folder, 0o755)
    expect(await refusal(folder)).toBe('accepted')
    for (const mode of [0o777, 0o1777, 0o770, 0o702]) {
      chmodSync(folder, mode)
      expect(await refusal(folder)).toMatch(/^state `.*` can be written by other users; [^\n]+$/)
    }
  })

  test.skipIf(process.geteuid?.() !== 0)(
    'of another user is refused in one line (needs the superuser to make one)',
    async () => {
      chownSync(folder, 12_345, 12_345)
      expect(await refusal(folder)).toMatch(
        /^state `.*` belongs to user 12345, and the gateway runs as user 0; [^\n]+$/,
      )
      await expect(openState(folder)).rejects.toThrow('belongs to user 12345')
      const inner = mkdtempSync(join(tmpdir(), 'state-'))
      mkdirSync(join(inner, 'revocations'))
      chownSync(join(inner, 'revocations'), 12_345, 12_345)
      await expect(openState(inner)).rejects.toThrow('belongs to user 12345')
      rmSync(inner, { recursive: true })
    },
  )

  test('that is a file, or below one, or a broken link, is refused in one line', async () => {
    writeFileSync(join(folder, 'file'), '')
    symlinkSync(join(folder, 'nowhere', 'x'), join(folder, 'link'))
    for (const path of ['file', 'file/below', 'link']) {
      expect(await refusal(join(folder, path))).toMatch(
        /^state `.*` (can't be made or read \([a-z ]+\)|is not a folder)$/,
      )
    }
  })

  test('a file is written whole or not at all', async () => {
    await writeWhole(join(folder, 'x'), 'one')
    await writeWhole(join(folder, 'x'), 'two')
    expect(readFileSync(join(folder, 'x'), 'utf8')).toBe('two')
    mkdirSync(join(folder, 'y'))
    await expect(writeWhole(join(folder, 'y'), 'three')).rejects.toMatchObject({ code: 'SALLYPORT_STATE_UNUSABLE' })
    expect(readdirSync(folder).sort()).toEqual(['x', 'y'])
  })
})

describe('a handle', () => {
  const key = newKey()

  test('stands for its token in a gateway that runs already, at the second use without a promise', async () => {
    const gateway = await open(folder)
    const identifier = createIdentifier({ issuers: [issuerOf([key])], ...gateway })
    const elsewhere = await open(folder)
    const handle = await elsewhere.handles.mint(await tokenOf(key, { sandbox: 'sbx_h' }), Date.now() + 3_600_000)
    expect(handle).toMatch(/^sph_[A-Za-z0-9_-]{32}$/)
    expect(await present(identifier, handle)).toMatchObject({ ok: true, identity: { sandbox: 'sbx_h' } })
    const again = present(identifier, handle)
    expect(again).not.toBeInstanceOf(Promise)
    expect(again).toMatchObject({ ok: true })
  })

  test('is revoked with its token', async () => {
    const state = await open(folder)
    const identifier = createIdentifier({ issuers: [issuerOf([key])], ...state })
    const handle = await state.handles.mint(await tokenOf(key, { tokenId: 'with-handle' }), Date.now() + 3_600_000)
    expect(await outcomeOf(identifier, handle)).toBe('ok')
    await state.revocations.revoke({ tokenId: 'with-handle' })
    expect(await outcomeOf(identifier, handle)).toBe('token_revoked')
  })

  test('expires with its token, is swept away later, and is then unknown', async () => {
    const clock = manualClock()
    const state = await open(folder, { clock })
    const identifier = createIdentifier({ issuers: [issuerOf([key])], ...state, clock })
    const token = await tokenOf(key, { lifeSeconds: 60, nowMs: clock.wallMs() })
    const handle = await state.handles.mint(token, clock.wallMs() + 60_000)
    clock.advance(120_000)
    expect(await outcomeOf(identifier, handle)).toBe('token_expired')
    clock.advance(600_000)
    await state.handles.mint(token, clock.wallMs() + 60_000)
    expect(readdirSync(join(folder, 'handles'))).toHaveLength(1)
    expect(await outcomeOf(createIdentifier({ issuers: [issuerOf([key])], ...state, clock }), handle)).toBe(
      'token_signature_invalid',
    )
  })

  test('minted after somebody tried it in vain works: that it was unknown is not remembered', async () => {
    const state = await open(folder)
    const identifier = createIdentifier({ issuers: [issuerOf([key])], ...state })
    const handle = await state.handles.mint(await tokenOf(key), Date.now() + 3_600_000)
    const [name = ''] = readdirSync(join(folder, 'handles'))
    const file = join(folder, 'handles', name)
    const bytes = readFileSync(file)
    rmSync(file)
    expect(await outcomeOf(identifier, handle)).toBe('token_signature_invalid')
    writeFileSync(file, bytes)
    utimesSync(file, Date.now() / 1000 + 600, Date.now() / 1000 + 600)
    expect(await outcomeOf(identifier, handle)).toBe('ok')
  })

  test('is verified like its token: whoever can write the folder still can not make a token', async () => {
    const state = await open(folder)
    const identifier = createIdentifier({ issuers: [issuerOf([key])], ...state })
    const forged = await state.handles.mint(await tokenOf(newKey()), Date.now() + 3_600_000)
    expect(await outcomeOf(identifier, forged)).toBe('token_signature_invalid')
    const nested = await state.handles.mint(forged, Date.now() + 3_600_000)
    expect(await outcomeOf(identifier, nested)).toBe('token_malformed')
  })

  test('leaves neither itself nor its token in the folder, and a changed file opens nothing', async () => {
    const state = await open(folder)
    const token = await tokenOf(key)
    const handle = await state.handles.mint(token, Date.now() + 3_600_000)
    const [name = '', ...others] = readdirSync(join(folder, 'handles'))
    expect(others).toEqual([])
    const file = join(folder, 'handles', name)
    const bytes = readFileSync(file)
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(name).not.toContain(handle.slice(4))
    for (const part of [handle, handle.slice(4), token, ...token.split('.')]) expect(bytes.includes(part)).toBe(false)
    for (let at = 0; at < bytes.length; at += 41) {
      const changed = Buffer.from(bytes)
      changed[at] = (changed[at] ?? 0) ^ 1
      writeFileSync(file, changed)
      expect(await state.handles.open(handle)).toBeUndefined()
    }
    writeFileSync(file, bytes.subarray(0, 20))
    expect(await state.handles.open(handle)).toBeUndefined()
    writeFileSync(file, bytes)
    expect(await state.handles.open(handle)).toBe(token)
  })

  test.each([
    'sph_',
    `sph_${'a'.repeat(31)}`,
    `sph_${'a'.repeat(33)}`,
    `sph_${'../'.repeat(10)}aa`,
    `sph_${'a'.repeat(31)}\n`,
    `SPH_${'a'.repeat(32)}`,
  ])('spelled %j is none', async (handle) => {
    expect(await (await open(folder)).handles.open(handle)).toBeUndefined()
  })
})
