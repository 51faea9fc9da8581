/** `sallyport mcp` with the protocol's own client: the real binary over standard input and output, a real sandbox, a real origin. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { describeNeeding } from '../needs.ts'
import { openSurrounds, type Surrounds } from './origin.ts'

const BIN = join(import.meta.dirname, '../../../provider/cli/bin.ts')
// Each test starts whole processes, on a machine that may be busy.
vi.setConfig({ testTimeout: 120_000 })

let around: Surrounds
let client: Client

describeNeeding(['bubblewrap'], 'sallyport mcp', () => {
  beforeAll(async () => {
    around = await openSurrounds()
    client = new Client({ name: 'test', version: '1' })
    await client.connect(
      new StdioClientTransport({
        command: process.execPath,
        args: [BIN, 'mcp', '--config', around.config, '--allow', `open.test:${around.port}`],
        cwd: around.folder,
        env: { PATH: process.env['PATH'] ?? '', ...around.environment },
      }),
    )
  })
  afterAll(async () => {
    await client.close()
    around.close()
  })

  async function call(name: string, args: Record<string, unknown> = {}) {
    const { content, isError } = await client.callTool({ name, arguments: args })
    const [first] = content as { type: string; text: string }[]
    return { text: first?.text ?? '', isError: isError === true }
  }

  test('there are four tools, each with a description', async () => {
    const { tools } = await client.listTools()
    expect(tools.map(({ name }) => name)).toEqual(['exec', 'read_file', 'write_file', 'list_files'])
    for (const { description } of tools) expect(description).toBeTruthy()
  })

  test('a command gives its output, errors and exit code', async () => {
    expect(await call('exec', { command: 'cat; pwd; echo bad >&2; exit 3', stdin: 'read\n' })).toEqual({
      text: `read\n${around.folder}\n\n[stderr]\nbad\n\n[exit code 3]`,
      isError: true,
    })
  })

  test('the agent is told what was refused, and what the operator could change', async () => {
    const refused = await call('exec', { command: `curl -sS http://other.test:${around.port}/` })
    const entry = `other.test:${around.port}`
    expect(refused.text).toContain(`[sallyport: refused ${entry}: host_not_allowed (--allow ${entry} lets it through)]`)
    const allowed = await call('exec', { command: `curl -sS http://open.test:${around.port}/` })
    expect(allowed).toEqual({ text: 'hello from open.test\n\n[exit code 0]', isError: false })
  })

  test('files are written, listed and read; the folder is the one of the host', async () => {
    expect((await call('write_file', { path: 'a/b.txt', content: 'grüße' })).text).toBe('7 bytes written')
    expect(readFileSync(join(around.folder, 'a/b.txt'), 'utf8')).toBe('grüße')
    expect((await call('list_files', { path: 'a' })).text).toBe(`7\t${join(around.folder, 'a/b.txt')}`)
    expect((await call('read_file', { path: 'a/b.txt' })).text).toBe('grüße')
    expect((await call('list_files', { path: 'none' })).text).toBe('no files')
  })

  test('what can not be done is an error with its code', async () => {
    const { text, isError } = await call('read_file', { path: '/etc/shadow' })
    expect(isError).toBe(true)
    expect(text).toContain('SALLYPORT_SANDBOX_FILE_FAILED')
    await call('exec', { command: 'head -c 2000000 /dev/zero > big' })
    expect(await call('read_file', { path: 'big' })).toMatchObject({ isError: true })
  })

  test('long output is cut and marked, and a long command is ended', async () => {
    const { text } = await call('exec', { command: 'head -c 300000 /dev/zero | tr "\\0" a' })
    expect(text).toContain(`[${300_000 - 256 * 1024} more bytes of stdout were left out]`)
    expect((await call('exec', { command: 'sleep 60', timeoutSeconds: 0.2 })).text).toContain('[timed out after 0.2 s]')
  })

  test('when the client goes, everything is taken away', async () => {
    expect(readdirSync(around.runtimeRoot)).toHaveLength(2)
    await client.close()
    await expect.poll(() => readdirSync(around.runtimeRoot), { timeout: 20_000 }).toEqual([])
  })
})
