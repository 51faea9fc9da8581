/** The walkthrough of docs/onboarding.md: its configuration and its commands as they stand there, against a gateway that a client goes through. */
import { execFile } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { startEcho, type Origin } from '../origins/origins.ts'
import { startBinary, type Outcome, type Serving } from '../proxy/cli/run-cli.ts'
import { WireClient } from './wire.ts'

const ROOT = join(import.meta.dirname, '../..')
const PAGE = readFileSync(join(ROOT, 'docs/onboarding.md'), 'utf8')
const HOST = '127.66.0.3'
const HOSTS = ['pypi.org', 'files.pythonhosted.org', 'api.example.com', 'pastebin.com']

let folder: string
let echo: Origin
let serving: Serving
let port = 0
const clients: WireClient[] = []

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-onboarding-'))
  echo = await startEcho(HOST)
  mkdirSync(join(folder, 'bin'))
  writeFileSync(
    join(folder, 'bin/sallyport'),
    `#!/bin/sh\nexec '${process.execPath}' '${join(ROOT, 'provider/cli/bin.ts')}' "$@"\n`,
  )
  chmodSync(join(folder, 'bin/sallyport'), 0o755)
})
afterAll(async () => {
  for (const client of clients) client.destroy()
  serving.kill('SIGTERM')
  await serving.ended
  await echo.close()
  rmSync(folder, { recursive: true, force: true })
})

test('report, suggest, replay, enforce', { timeout: 300_000 }, async () => {
  // The page, and what stands for the internet: no port of the page's, and origins on loopback.
  const network = { allowPrivate: [`${HOST}/32`], hosts: Object.fromEntries(HOSTS.map((host) => [host, HOST])) }
  const document = {
    ...(parse(block('yaml config')) as object),
    listen: { proxy: '127.0.0.1:0' },
    network,
    sni: { ports: [] },
  }
  writeFileSync(join(folder, 'sallyport.yaml'), JSON.stringify(document))
  expect(await run('report')).toMatchObject({ code: 0, stderr: '' })
  serving = startBinary(['serve', '--config', 'sallyport.yaml'], { cwd: folder })
  port = Number((await serving.until('stdout', /proxy +http:\/\/127\.0\.0\.1:(\d+)/))[1])

  const [first, second] = [await mint('sbx_1'), await mint('sbx_2')]
  const [api, paste] = [`api.example.com:${echo.port}`, `pastebin.com:${echo.port}`]
  // Nothing listens on 443 here: policy lets out, and then the connection fails.
  for (const [token, place, status] of [
    [first, 'pypi.org:443', 502],
    [second, 'files.pythonhosted.org:443', 502],
    [first, api, 200],
    [second, paste, 200],
    [first, 'metadata.google.internal:80', 403],
  ] as const)
    expect([place, (await connect(token, place)).status]).toEqual([place, status])
  const watched = await run('watch')
  expect(watched.stdout.match(/REPORTED/g)).toHaveLength(4)

  expect(await run('suggest')).toMatchObject({ code: 0, stderr: '' })
  const suggested = readFileSync(join(folder, 'acme.yaml'), 'utf8')
  expect(parse(suggested)).toEqual({ kind: 'static', allowedHosts: ['@pypi', api] })
  expect(suggested).toMatch(/# @pypi +2 +2 +0 +2 \(sbx_1, sbx_2\)/)
  expect(suggested).toMatch(/# pastebin\.com:\d+ +1 .*--include paste/)
  // The example of the page is what the command prints, but for the times.
  const heading = PAGE.split('\n').find((line) => line.startsWith('# entry '))
  expect(suggested).toContain(heading?.split(/ {2,}/)[1] ?? 'no heading')

  const replayed = await run('replay')
  expect(replayed.code).toBe(2)
  expect(replayed.stdout).toContain('would refuse 1 that were let out')
  expect(replayed.stdout).toMatch(/pastebin\.com:\d+ +acme +host_not_allowed at tenant +1/)

  const [kept, cut] = [await connect(first, api), await connect(second, paste)]
  expect(await run('enforce')).toMatchObject({ code: 0 })
  await cut.client.over(5_000)
  kept.client.send('x')
  expect((await kept.client.take(1)).toString()).toBe('x')
  expect((await connect(second, paste)).status).toBe(403)
  expect((await connect(first, api)).status).toBe(200)
  const after = await run('after')
  expect(after.code).toBe(0)
  expect(after.stdout).toMatch(/files\.pythonhosted\.org:443 is let out, by the entry @pypi/)
  expect(after.stdout).toMatch(/REFUSED {2}host_not_allowed at tenant {2}pastebin\.com:\d+/)
})

function block(kind: string): string {
  const text = new RegExp(`^\`\`\`${kind}\n([^]*?)^\`\`\``, 'm').exec(PAGE)?.[1]
  if (text === undefined) throw new Error(`the page has no block \`${kind}\``)
  return text
}

/** Runs a block of the page as somebody would who pastes it line by line; the code is that of the last line. */
async function run(name: string): Promise<Outcome> {
  const env = { PATH: `${join(folder, 'bin')}:${process.env['PATH'] ?? ''}` }
  return new Promise((resolve) => {
    const child = execFile('sh', ['-c', block(`sh ${name}`)], { cwd: folder, env }, (_error, stdout, stderr) =>
      resolve({ code: child.exitCode, stdout, stderr }),
    )
  })
}

async function mint(sandbox: string): Promise<string> {
  const args = ['token', 'mint', '--config', 'sallyport.yaml', '--tenant', 'acme', '--sandbox', sandbox, '--allow-all']
  const child = startBinary(args, { cwd: folder })
  expect([await child.ended, child.stderr()]).toEqual([0, ''])
  return child.stdout().trim()
}

async function connect(token: string, place: string): Promise<{ client: WireClient; status: number }> {
  const client = await WireClient.connect({ port, host: '127.0.0.1' })
  clients.push(client)
  client.send(`CONNECT ${place} HTTP/1.1\r\nHost: ${place}\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
  return { client, status: (await client.answer())?.status ?? 0 }
}
