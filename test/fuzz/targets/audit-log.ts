/** Files of an audit log as somebody else left them: what verifies, what is found in them, and how the next run goes on. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { SallyportError } from '../../../policies/index.ts'
import { openLineIndex } from '../../../proxy/audit/index/line-index.ts'
import { openAuditLog } from '../../../proxy/audit/log.ts'
import { queryAudit } from '../../../proxy/audit/query.ts'
import { csvLine } from '../../../proxy/audit/formats/csv.ts'
import { formatEvent } from '../../../proxy/audit/formats/format.ts'
import { tailAudit } from '../../../proxy/audit/tail.ts'
import { describeVerification } from '../../../proxy/audit/verify-text.ts'
import { verifyAudit } from '../../../proxy/audit/verify.ts'
import { describeLine } from '../../../proxy/cli/audit-print.ts'
import { auditKey } from '../keys.ts'
import { randomOf } from '../random.ts'
import { hold, same, type Target } from '../target.ts'

/** Stands between the files of an input. */
const FILE_END = '%%\n'
const key = auditKey()
const INSTANCE = 'gw'
/** Files that are no affair of a disk. */
const MEMORY = '/dev/shm'
/** Opening an index, or a log to go on with, takes longer than all else: one input in so many. */
const RARE = 6

/** Opens the target. */
export async function auditLog(): Promise<Target> {
  const scratch = fs.mkdtempSync(path.join(fs.existsSync(MEMORY) ? MEMORY : os.tmpdir(), 'sallyport-fuzz-'))
  const folder = path.join(scratch, 'log')
  const good = [await goodLog(folder, 1), await goodLog(folder, 3)]
  return {
    name: 'audit-log',
    maxBytes: 24 * 1024,
    maxCpuMs: 1500,
    seeds: good.map((text) => Buffer.from(text, 'latin1')),
    words: [
      ...[
        '\n',
        FILE_END,
        '{',
        '}',
        '"seq":1',
        '"seq":2',
        '"action":"gap","lost":5',
        '"action":"checkpoint"',
        '"action":"start"',
        '"cause":"stop"',
      ],
      ...[
        '"previous":"missing"',
        '"previous":"none"',
        '"kind":"admin"',
        '"action":"retention","segment":1',
        '\\u0000',
        '\xe9',
        '1e400',
        '"__proto__":{}',
      ],
    ],
    run: async (input) => {
      const text = input.toString('latin1')
      writeFiles(folder, text.split(FILE_END))
      const verified = await nothingButNamed(() => verifyAudit({ paths: [folder], keys: [key] }))
      for (const shown of verified === undefined ? [] : describeVerification(verified))
        hold(!/[\p{Cc}\p{Cf}]/u.test(shown), 'a verdict reaches a terminal as more than text', () => shown)
      if (verified?.ok === true) {
        hold(
          verified.instances.every(({ unsignedLines, lines }) => unsignedLines <= lines),
          'more lines are unsigned than there are',
        )
        hold(
          good.some((whole) => signedPart(whole).startsWith(signedPart(text))),
          'a log verifies that nobody signed',
          () => text,
        )
      }
      const random = randomOf(input)
      await checkFound(folder, verified?.ok === true && random.below(RARE) === 0)
      if (random.below(RARE) > 0) return
      const isOn = await nothingButNamed(() => goOn(folder))
      if (isOn === undefined || verified?.ok !== true) return
      const after = await verifyAudit({ paths: [folder], keys: [key] })
      hold(after.ok, 'a log verifies, but not after the next run', () => after)
    },
    close: () => fs.rmSync(scratch, { recursive: true, force: true }),
  }
}

/** The result, or `undefined` for the errors that callers are told of. */
async function nothingButNamed<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof SallyportError) return undefined
    throw error
  }
}

/** What is found fits the filter; with an index the same is found as without, in a log that verifies. */
async function checkFound(folder: string, withIndex: boolean): Promise<void> {
  const found = async (more: object): Promise<string[]> => {
    const lines: string[] = []
    for await (const { line, text } of queryAudit({ path: folder, limit: 1000, ...more })) {
      lines.push(text)
      for (const shown of [text, describeLine(line)])
        hold(!/[\p{Cc}\p{Cf}]/u.test(shown), 'a line reaches a terminal as more than text', () => shown)
      csvLine(line)
      for (const format of ['ocsf', 'ecs'] as const) JSON.parse(formatEvent(format, line, text))
    }
    return lines
  }
  const filters = { tenant: 'acme' }
  const plain = await nothingButNamed(() => found({ filters }))
  await nothingButNamed(() => found({ cursor: 'bm9uZQ' }))
  hold(
    plain?.every((text) => text.includes('"tenant":"acme"')) !== false,
    'what is found does not fit the filter',
    () => plain,
  )
  const opened = withIndex ? await openLineIndex(folder) : undefined
  if (opened?.ok === true) {
    const { index } = opened
    same(await nothingButNamed(() => found({ filters, index })), plain, 'the index finds other lines than the files')
    index.close()
  }
  await nothingButNamed(async () => {
    let count = 0
    for await (const { text } of tailAudit({ path: folder, lines: 5, follow: false })) count += text === '' ? 0 : 1
    hold(count <= 5, 'the tail is longer than was asked for', () => count)
  })
}

async function goOn(folder: string): Promise<boolean> {
  const log = await openAuditLog({
    path: folder,
    instance: INSTANCE,
    onFailure: 'deny',
    signingKey: key,
    clock: clockAt(1_800_000_100_000),
  })
  const isWritten = await log.write({ kind: 'admin', action: 'reload' })
  await log.close()
  return isWritten
}

function writeFiles(folder: string, files: readonly string[]): void {
  fs.rmSync(folder, { recursive: true, force: true })
  fs.mkdirSync(folder)
  files.slice(0, 8).forEach((text, index) => fs.writeFileSync(path.join(folder, fileName(index + 1)), text, 'latin1'))
}

const fileName = (number: number): string => `audit-${INSTANCE}-${String(number).padStart(6, '0')}.jsonl`

/** Up to the last checkpoint. */
function signedPart(text: string): string {
  const lines = text.split(/(?<=\n)/)
  const last = lines.findLastIndex((line) => /^\{.*"action":"checkpoint".*"signature":"[^"]*"\}\n$/.test(line))
  return lines.slice(0, last + 1).join('')
}

/** A log of so many files that was stopped in order; always the same. */
async function goodLog(folder: string, files: number): Promise<string> {
  writeFiles(folder, [])
  const log = await openAuditLog({
    path: folder,
    instance: INSTANCE,
    onFailure: 'deny',
    signingKey: key,
    clock: clockAt(1_800_000_000_000),
    maxFileBytes: files === 1 ? 1 << 20 : 900,
  })
  for (let line = 0; line < 2 * files; line += 1)
    await log.write({
      ...{
        kind: 'decision',
        decision: 'allow',
        effective: 'allow',
        request_id: `r-${line}`,
        tenant: line % 2 === 0 ? 'acme' : 'other',
      },
      ...{ host: 'api.example.com', port: 443, requested: 'api.example.com:443' },
    } as const)
  await log.close()
  return fs
    .readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl'))
    .sort()
    .map((name) => fs.readFileSync(path.join(folder, name), 'latin1'))
    .join(FILE_END)
}

function clockAt(wallMs: number) {
  return { wallMs: () => wallMs, monotonicMs: () => performance.now() }
}
