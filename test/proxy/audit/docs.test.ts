import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { auditLineSchema } from '../../../proxy/audit/schema.ts'
import { verifyAudit } from '../../../proxy/audit/verify.ts'
import { decisions, logFiles, makeFolder, openTestLog, rawLines, testKey } from './support.ts'

const page = readFileSync(new URL('../../../docs/audit.md', import.meta.url), 'utf8')

/** The code block of the page with that name. */
function recipe(name: string): string {
  const code = new RegExp(`^\`\`\`\\w+ ${name}\\n(.*?)^\`\`\``, 'ms').exec(page)?.[1]
  if (code === undefined) throw new Error(`docs/audit.md has no block named ${name}`)
  return code
}

async function makeLog(): Promise<string> {
  const folder = makeFolder()
  for (let run = 0; run < 2; run += 1) {
    const log = await openTestLog(folder, { maxFileBytes: 5000 })
    for (const entry of decisions(12)) await log.write(entry)
    await log.close()
  }
  return folder
}

function run(command: string, argv: readonly string[], environment: Record<string, string> = {}, cwd = makeFolder()) {
  const { status, stdout, stderr, error } = spawnSync(command, argv, {
    cwd,
    encoding: 'utf8',
    env: { ...process.env, ...environment },
  })
  if (error !== undefined) throw error
  return { status, stdout, stderr }
}

function isPresent(command: string, context: { skip: (note: string) => void }): void {
  if (spawnSync(command, ['--version']).error === undefined && spawnSync(command, ['version']).error === undefined)
    return
  const reason = `${command} is not installed`
  if (process.env['CI'] === 'true') throw new Error(reason)
  console.log(`skipped: ${reason}`)
  context.skip(reason)
}

describe('the recipes of docs/audit.md', { timeout: 120_000 }, () => {
  it('the hash of a line is in the next one', async () => {
    const log = logFiles(await makeLog())[0]!
    const [hash, prev, ...rest] = run('sh', ['-c', recipe('verify-chain')], { LOG: log }).stdout.split('\n')
    expect(hash).toMatch(/^[0-9a-f]{64}$/)
    expect(prev).toBe(hash)
    expect(rest).toEqual([''])
  })

  it('openssl verifies the last checkpoint of a file, and refuses a changed one', async (context) => {
    isPresent('openssl', context)
    const log = logFiles(await makeLog())[0]!
    const key = join(makeFolder(), 'audit-key.public.jwk')
    writeFileSync(key, testKey.publicJwk)
    const script = recipe('verify-signature')
    expect(run('sh', ['-ec', script], { LOG: log, KEY: key })).toMatchObject({
      status: 0,
      stdout: 'Signature Verified Successfully\n',
    })
    writeFileSync(
      log,
      rawLines(log)
        .map((line, index, { length }) => (index === length - 1 ? line.replace(/"seq":(\d)/, '"seq":9$1') : line))
        .join(''),
    )
    expect(run('sh', ['-ec', script], { LOG: log, KEY: key }).status).not.toBe(0)
  })

  it('the script follows the whole chain, and finds what verify finds', async (context) => {
    isPresent('python3', context)
    const folder = await makeLog()
    const script = join(makeFolder(), 'verify.py')
    writeFileSync(script, recipe('verify-log'))
    const { instances } = await verifyAudit({ paths: [folder] })
    const { lastSeq, head } = instances[0]!
    expect(run('python3', [script, folder, 'gw'])).toMatchObject({
      status: 0,
      stdout: `ok: ${lastSeq} lines, the last has the hash ${head}\n`,
    })
    const file = logFiles(folder)[1]!
    writeFileSync(file, rawLines(file).toSpliced(2, 1).join(''))
    expect(run('python3', [script, folder, 'gw'])).toMatchObject({
      status: 1,
      stderr: `${file}:3: the chain is broken\n`,
    })
  })

  it('the shipped checkpoint is an anchor', async () => {
    const folder = await makeLog()
    const { stdout } = run('sh', ['-c', recipe('ship-checkpoints')], { FOLDER: folder })
    expect(await verifyAudit({ paths: [folder], keys: [testKey.key], anchors: [stdout] })).toMatchObject({ ok: true })
  })
})

it('docs/audit.md names every field of a line, and no other', () => {
  const table = page.slice(page.indexOf('| field |'), page.indexOf('The JSON Schema ships'))
  const named = [...table.matchAll(/^\| (`[^|]*`) \|/gm)].flatMap(([, cell = '']) =>
    [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name),
  )
  const fields = auditLineSchema.options.flatMap(({ shape }) => Object.keys(shape))
  expect(named.toSorted()).toEqual([...new Set(fields)].toSorted())
})
