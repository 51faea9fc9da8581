import {
  appendFileSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { generateAuditKey, parseSigningKey, parseVerifyKeys } from '../../../proxy/audit/key.ts'
import { openAuditLog } from '../../../proxy/audit/log.ts'
import { verifyAudit, type VerifyOptions } from '../../../proxy/audit/verify.ts'
import { describeVerification } from '../../../proxy/audit/verify-text.ts'
import { systemClock } from '../../../proxy/clock.ts'
import {
  decision,
  decisions,
  logFiles,
  makeFolder,
  openTestLog,
  rawLines,
  rechain,
  readAll,
  testKey,
  writeAll,
} from './support.ts'

/** Two runs, both stopped in order: files 1 to 3 and files 4 to 6. */
async function makeLog(folder: string, instance = 'gw'): Promise<void> {
  for (let run = 0; run < 2; run += 1) {
    const log = await openAuditLog({
      path: folder,
      instance,
      maxFileBytes: 8000,
      onFailure: 'deny',
      signingKey: testKey.key,
      clock: systemClock,
    })
    for (const entry of decisions(28, run * 28 + 1)) await log.write(entry)
    await log.close()
  }
  expect(logFiles(folder)).toHaveLength(6)
}

function edit(path: string, change: (lines: string[]) => readonly string[]): void {
  writeFileSync(path, change(rawLines(path)).join(''))
}

async function verify(folder: string, options: Partial<VerifyOptions> = {}) {
  return verifyAudit({ paths: [folder], keys: [testKey.key], ...options })
}

let original = ''
beforeAll(async () => {
  original = mkdtempSync(join(tmpdir(), 'sallyport-audit-original-'))
  await makeLog(original)
  return () => rmSync(original, { recursive: true })
})

function copyLog(): { readonly folder: string; readonly file: (number: number) => string } {
  const folder = makeFolder()
  for (const path of logFiles(original)) copyFileSync(path, join(folder, path.slice(original.length)))
  return { folder, file: (number) => join(folder, `audit-gw-00000${number}.jsonl`) }
}

describe('verify', () => {
  it('holds for an untouched log, and counts what it saw', async () => {
    const { folder } = copyLog()
    const lines = readAll(folder)
    const verified = await verify(folder)
    expect(verified).toMatchObject({
      ok: true,
      signatures: 'checked',
      instances: [
        {
          instance: 'gw',
          lines: lines.length,
          firstSeq: 1,
          lastSeq: lines.length,
          lost: 0,
          unsignedLines: 0,
          runs: [
            { end: 'stop', firstSeq: 1 },
            { end: 'stop', lastSeq: lines.length },
          ],
        },
      ],
    })
    expect(describeVerification(verified).at(-1)).toBe(
      'ok: nothing was cut, changed or reordered up to the last checkpoint',
    )
  })

  it('checks the chain without a key, and says what that is worth', async () => {
    const { folder } = copyLog()
    const verified = await verify(folder, { keys: [] })
    expect(verified).toMatchObject({ ok: true, signatures: 'unchecked' })
    expect(describeVerification(verified).join('\n')).toContain('signatures were not checked')
  })

  it('takes single files, in any order', async () => {
    const { folder } = copyLog()
    expect(await verifyAudit({ paths: logFiles(folder).reverse(), keys: [testKey.key] })).toMatchObject({ ok: true })
  })

  it('reports lines that no checkpoint covers yet, and a run that has no end', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(7))
    const verified = await verify(folder)
    expect(verified).toMatchObject({ ok: true, instances: [{ unsignedLines: 7, runs: [{ end: 'open' }] }] })
    expect(describeVerification(verified).join('\n')).toContain('the last 7 are not signed yet')
  })
})

describe('an attacker who can write the files', () => {
  type Attack = (log: ReturnType<typeof copyLog>) => void
  const attacks: readonly (readonly [name: string, code: string, attack: Attack])[] = [
    [
      'changes a byte',
      'chain_broken',
      ({ file }) =>
        edit(file(2), (lines) => lines.map((line, index) => (index === 3 ? line.replace('acme', 'acmf') : line))),
    ],
    [
      'changes the last line of a closed file',
      'signature_invalid',
      ({ file }) =>
        edit(file(3), (lines) =>
          lines.map((line, index) => (index === lines.length - 1 ? line.replace('"stop"', '"xtop"') : line)),
        ),
    ],
    ['removes a line', 'lines_missing', ({ file }) => edit(file(2), (lines) => lines.toSpliced(3, 1))],
    ['repeats a line', 'lines_reordered', ({ file }) => edit(file(2), (lines) => lines.toSpliced(3, 0, lines[3]!))],
    [
      'swaps two lines',
      'lines_missing',
      ({ file }) => edit(file(2), (lines) => lines.toSpliced(3, 2, lines[4]!, lines[3]!)),
    ],
    [
      'adds a line in the middle',
      'lines_reordered',
      ({ file }) => edit(file(2), (lines) => lines.toSpliced(3, 0, lines[3]!.replace('acme', 'evil'))),
    ],
    [
      'removes a line, renumbers and chains the rest anew',
      'signature_invalid',
      ({ file }) =>
        edit(file(2), (lines) =>
          rechain(
            lines
              .toSpliced(3, 1)
              .map((line, index) =>
                index < 3 ? line : line.replace(/"seq":(\d+)/, (_all, seq: string) => `"seq":${Number(seq) - 1}`),
              ),
            prevOf(lines[0]!),
          ),
        ),
    ],
    [
      'changes a line and chains the file anew',
      'signature_invalid',
      ({ file }) =>
        edit(file(2), (lines) =>
          rechain(
            lines.map((line, index) => (index === 3 ? line.replace('acme', 'evil') : line)),
            prevOf(lines[0]!),
          ),
        ),
    ],
    [
      'changes a line and drops the checkpoint that covers it',
      'lines_missing',
      ({ file }) =>
        edit(file(2), (lines) =>
          rechain(
            lines.slice(0, -1).map((line, index) => (index === 3 ? line.replace('acme', 'evil') : line)),
            prevOf(lines[0]!),
          ),
        ),
    ],
    ['cuts the head of the first file', 'lines_missing', ({ file }) => edit(file(1), (lines) => lines.slice(2))],
    ['cuts the head of a later file', 'lines_missing', ({ file }) => edit(file(2), (lines) => lines.slice(1))],
    [
      'cuts the tail of a file in the middle',
      'lines_missing',
      ({ file }) => edit(file(2), (lines) => lines.slice(0, -1)),
    ],
    [
      'cuts the tail of a run at a checkpoint',
      'lines_missing',
      ({ file }) => edit(file(4), (lines) => lines.slice(0, 2)),
    ],
    [
      'cuts a file in the middle of a line',
      'lines_missing',
      ({ file }) => truncateSync(file(3), readFileSync(file(3)).length - 50),
    ],
    ['empties a file', 'lines_missing', ({ file }) => truncateSync(file(2), 0)],
    ['removes the first file', 'segment_missing', ({ file }) => rmSync(file(1))],
    ['removes a file in the middle', 'segment_missing', ({ file }) => rmSync(file(3))],
    [
      'removes a file and renames the rest',
      'lines_missing',
      ({ file }) => [3, 4, 5, 6].forEach((number) => renameSync(file(number), file(number - 1))),
    ],
    ['swaps two files', 'lines_missing', ({ file }) => swap(file(2), file(3))],
    [
      'puts an earlier file in the place of a later one',
      'lines_reordered',
      ({ file }) => copyFileSync(file(2), file(4)),
    ],
    ['adds an earlier file at the end', 'lines_reordered', ({ file }) => copyFileSync(file(2), file(7))],
    [
      'changes a line, gives the next line the new hash, and leaves the rest',
      'chain_broken',
      ({ file }) =>
        edit(file(2), (lines) => [
          ...lines.slice(0, 3),
          ...rechain([lines[3]!.replace('acme', 'evil'), lines[4]!], prevOf(lines[3]!)),
          ...lines.slice(5),
        ]),
    ],
    ['adds half a line to a closed file', 'line_after_close', ({ file }) => appendFileSync(file(2), '{"seq":')],
    [
      'adds a line to a closed file',
      'line_after_close',
      ({ file }) => appendFileSync(file(6), rechainAfter(file(6), '"kind":"decision"')),
    ],
    [
      'adds a line that is none',
      'line_malformed',
      ({ file }) => edit(file(2), (lines) => lines.toSpliced(3, 0, 'hello\n')),
    ],
    [
      'adds bytes that a terminal would obey',
      'line_malformed',
      ({ file }) => edit(file(2), (lines) => lines.toSpliced(3, 0, '{"seq":1,"x":"\x1b[2J"}\n')),
    ],
    [
      'copies a file under a second number',
      'segment_duplicated',
      ({ folder, file }) => copyFileSync(file(5), join(folder, 'audit-gw-0000005.jsonl')),
    ],
  ]

  it.each(attacks)('%s: %s', async (_name, code, attack) => {
    const log = copyLog()
    attack(log)
    const verified = await verify(log.folder)
    expect(verified.ok).toBe(false)
    expect(verified.fault).toMatchObject({ code })
    expect(describeVerification(verified).at(-1)).toMatch(/^fault: .*\.jsonl/)
  })

  it('names the file and the line', async () => {
    const log = copyLog()
    edit(log.file(2), (lines) => lines.map((line, index) => (index === 3 ? line.replace('acme', 'acmf') : line)))
    expect((await verify(log.folder)).fault).toMatchObject({ file: log.file(2), line: 5, instance: 'gw' })
  })

  it('renames a file that stands alone', async () => {
    const folder = makeFolder()
    await (await openTestLog(folder)).close()
    renameSync(logFiles(folder)[0]!, join(folder, 'audit-gw-000002.jsonl'))
    expect((await verify(folder, { fromSegment: 2 })).fault).toMatchObject({ code: 'file_renamed' })
  })

  it('drops the checkpoint that closes a file and makes everything after it anew: found without a key too', async () => {
    const log = copyLog()
    const [, ...kept] = rawLines(log.file(1)).reverse()
    const rest = [2, 3, 4, 5, 6].map((number) => rawLines(log.file(number)))
    const renumbered = rest.map((lines) =>
      lines.map((line) => line.replace(/"seq":(\d+)/, (_all, seq: string) => `"seq":${Number(seq) - 1}`)),
    )
    const chained = rechain([kept[0]!, ...renumbered.flat()], prevOf(kept[0]!)).slice(1)
    edit(log.file(1), () => kept.reverse())
    for (const [index, lines] of renumbered.entries()) edit(log.file(index + 2), () => chained.splice(0, lines.length))
    expect((await verify(log.folder, { keys: [] })).fault).toMatchObject({
      code: 'file_end_differs',
      file: log.file(2),
    })
  })

  it('puts the log of another instance in its place', async () => {
    const other = makeFolder()
    await makeLog(other, 'other')
    const log = copyLog()
    copyFileSync(join(other, 'audit-other-000002.jsonl'), log.file(2))
    expect((await verify(log.folder)).fault).toMatchObject({ code: 'instance_foreign' })
  })

  it('signs a chain of their own with another key', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder, { signingKey: generateAuditKey().key })
    await log.write(decision())
    await log.close()
    expect((await verify(folder)).fault).toMatchObject({ code: 'signer_unknown' })
    expect((await verify(folder, { keys: [] })).ok).toBe(true)
  })

  it('leaves away every checkpoint', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(1200))
    await log.close()
    const file = logFiles(folder)[0]!
    edit(file, (lines) =>
      rechain(
        lines
          .filter((line) => !line.includes('"action":"checkpoint"'))
          .map((line, index) => line.replace(/"seq":\d+/, `"seq":${index + 1}`)),
        '0'.repeat(64),
      ),
    )
    expect((await verify(folder)).fault).toMatchObject({ code: 'checkpoint_missing' })
  })

  it('cuts the end at a checkpoint, or brings back an older copy: only a checkpoint kept elsewhere shows it', async () => {
    const log = copyLog()
    const anchor = rawLines(log.file(6)).at(-1)!
    rmSync(log.file(6))
    expect(await verify(log.folder)).toMatchObject({
      ok: true,
      instances: [{ runs: [{ end: 'stop' }, { end: 'open' }] }],
    })
    expect((await verify(log.folder, { anchors: [anchor] })).fault).toMatchObject({ code: 'log_cut' })
  })

  it('replaces the whole log with another that the same key signed: only a kept checkpoint shows it', async () => {
    const anchor = rawLines(logFiles(original)[1]!).at(-1)!
    const folder = makeFolder()
    await makeLog(folder)
    expect(await verify(folder)).toMatchObject({ ok: true })
    expect((await verify(folder, { anchors: [anchor] })).fault).toMatchObject({ code: 'anchor_differs' })
  })

  it('removes every file of an instance: only a kept checkpoint shows it', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder, { instance: 'other' })
    await log.close()
    expect(await verify(folder, { anchors: [rawLines(logFiles(original)[0]!).at(-1)!] })).toMatchObject({
      ok: false,
      fault: { code: 'instance_missing', instance: 'gw' },
    })
  })
})

describe('an archived beginning', () => {
  it('may be missing when the caller says so, or holds the checkpoint that closed it', async () => {
    const log = copyLog()
    const closing = rawLines(log.file(2)).at(-1)!
    const early = rawLines(log.file(1)).find((line) => line.includes('"action":"checkpoint"'))!
    const archive = makeFolder()
    for (const number of [1, 2]) renameSync(log.file(number), join(archive, `audit-gw-00000${number}.jsonl`))
    expect((await verify(log.folder)).fault).toMatchObject({
      code: 'segment_missing',
      message: 'files 1 to 2 are missing',
    })
    expect((await verify(log.folder, { fromSegment: 4 })).fault).toMatchObject({
      code: 'segment_unexpected',
      message: 'file 3 is there, but 4 was said to be the first',
    })
    expect(await verify(log.folder, { fromSegment: 3 })).toMatchObject({ ok: true, instances: [{ firstSegment: 3 }] })
    expect(await verify(log.folder, { anchors: [closing] })).toMatchObject({ ok: true })
    expect(await verify(log.folder, { anchors: [early], fromSegment: 3 })).toMatchObject({ ok: true })
    expect(await verifyAudit({ paths: [archive, log.folder], keys: [testKey.key] })).toMatchObject({ ok: true })
    rmSync(log.file(3))
    expect((await verify(log.folder, { anchors: [closing] })).fault).toMatchObject({ code: 'segment_missing' })
  })

  it('does not match the checkpoint of another log', async () => {
    const other = makeFolder()
    await makeLog(other)
    const log = copyLog()
    for (const number of [1, 2]) rmSync(log.file(number))
    expect((await verify(log.folder, { anchors: [rawLines(logFiles(other)[1]!).at(-1)!] })).fault).toMatchObject({
      code: 'chain_broken',
    })
  })

  it('and a folder that was emptied altogether is continued from the kept head', async () => {
    const headPath = join(makeFolder(), 'head')
    const [folder, archive] = [makeFolder(), makeFolder()]
    await (await openTestLog(folder, { headPath })).close()
    const closing = rawLines(logFiles(folder)[0]!).at(-1)!
    renameSync(logFiles(folder)[0]!, join(archive, 'audit-gw-000001.jsonl'))
    await (await openTestLog(folder, { headPath })).close()
    expect(await verify(folder, { anchors: [closing] })).toMatchObject({ ok: true, instances: [{ firstSegment: 2 }] })
    expect(await verifyAudit({ paths: [folder, archive], keys: [testKey.key] })).toMatchObject({ ok: true })
  })
})

describe('what can not be verified', () => {
  it.each([
    ['a path that is not there', '/nonexistent/audit'],
    ['a file that is not named as one', import.meta.filename],
  ])('%s', async (_name, path) => {
    await expect(verifyAudit({ paths: [path] })).rejects.toMatchObject({ code: 'SALLYPORT_AUDIT_UNREADABLE' })
  })

  it('a folder without a log', async () => {
    const folder = makeFolder()
    mkdirSync(join(folder, 'x'))
    await expect(verifyAudit({ paths: [folder] })).rejects.toMatchObject({ code: 'SALLYPORT_AUDIT_UNREADABLE' })
  })

  it('an anchor that nobody signed', async () => {
    const anchor = rawLines(logFiles(original)[1]!)
      .at(-1)!
      .replace(/"seq":(\d+)/, '"seq":1$1')
    await expect(verify(original, { anchors: [anchor] })).rejects.toMatchObject({ code: 'SALLYPORT_AUDIT_UNREADABLE' })
    await expect(verify(original, { anchors: ['hello'] })).rejects.toMatchObject({ code: 'SALLYPORT_AUDIT_UNREADABLE' })
  })
})

describe('the key', () => {
  it('is read from JWK, JWK set and PEM, private or public, with the same name', () => {
    const { key, privateJwk, publicJwk } = generateAuditKey()
    const pem = key.publicKey.export({ type: 'spki', format: 'pem' }) as string
    const privatePem = key.privateKey.export({ type: 'pkcs8', format: 'pem' }) as string
    for (const material of [privateJwk, publicJwk, pem, privatePem, `{"keys":[${publicJwk}]}`])
      expect(parseVerifyKeys(material, 'k').map(({ id }) => id)).toEqual([key.id])
    for (const material of [privateJwk, privatePem]) expect(parseSigningKey(material, 'k').id).toBe(key.id)
    expect(publicJwk).not.toContain('"d"')
  })

  it.each([
    ['nothing', ''],
    ['half a JWK', '{"kty":"OKP"'],
    ['a symmetric key', '{"kty":"oct","k":"TUFSS0VS"}'],
    ['half a PEM', '-----BEGIN PRIVATE KEY-----\nTUFSS0VS\n-----END PRIVATE KEY-----\n'],
  ])('refuses %s without repeating it', (_name, material) => {
    for (const parse of [parseSigningKey, parseVerifyKeys]) {
      expect(() => parse(material, 'k')).toThrow(
        expect.objectContaining({
          code: 'SALLYPORT_KEY_UNREADABLE',
          message: expect.not.stringContaining('TUFSS0VS') as string,
        }),
      )
    }
  })

  it('refuses to sign with a public key', () => {
    expect(() => parseSigningKey(generateAuditKey().publicJwk, 'k')).toThrow(
      expect.objectContaining({ code: 'SALLYPORT_KEY_UNREADABLE' }),
    )
  })
})

function prevOf(line: string): string {
  return (JSON.parse(line) as { prev: string }).prev
}

function swap(left: string, right: string): void {
  renameSync(left, `${left}.x`)
  renameSync(right, left)
  renameSync(`${left}.x`, right)
}

/** A line that continues the chain of a file as it should. */
function rechainAfter(path: string, kind: string): string {
  const last = rawLines(path).at(-1)!
  const { seq } = JSON.parse(last) as { seq: number }
  const template = rawLines(logFiles(original)[0]!).find((line) => line.includes(kind))!
  return rechain([last, template.replace(/"seq":\d+/, `"seq":${seq + 1}`)], prevOf(last))[1]!
}
