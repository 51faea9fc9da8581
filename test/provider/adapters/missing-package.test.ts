/** Where a framework is not installed, its adapter loads all the same, and says what to install. */
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'

const ROOT = path.join(import.meta.dirname, '../../..')
const FRAMEWORKS = ['@langchain', '@openai', 'ai', 'deepagents', 'langchain']

let folder: string
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spx-'))
  fs.copyFileSync(path.join(ROOT, 'package.json'), path.join(folder, 'package.json'))
  for (const name of ['policies', 'proxy', 'provider']) fs.symlinkSync(path.join(ROOT, name), path.join(folder, name))
  fs.mkdirSync(path.join(folder, 'node_modules'))
  for (const name of fs.readdirSync(path.join(ROOT, 'node_modules'))) {
    if (FRAMEWORKS.includes(name)) continue
    fs.symlinkSync(path.join(ROOT, 'node_modules', name), path.join(folder, 'node_modules', name))
  }
})
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }))

/** What a program in that folder prints. */
async function runThere(program: string): Promise<string> {
  const file = path.join(folder, 'program.mjs')
  fs.writeFileSync(file, program)
  // Links are followed to this repository otherwise, which has everything.
  const flags = ['--preserve-symlinks', '--preserve-symlinks-main']
  const { stdout } = await promisify(execFile)(process.execPath, [...flags, file])
  return stdout
}

test.each([
  ['langchain', 'sandboxTools', '@langchain/core'],
  ['langchain', 'deepagentsBackend', 'deepagents'],
  ['openai-agents', 'sandboxTools', '@openai/agents'],
  ['openai-agents', 'sandboxClient', '@openai/agents'],
  ['openai-agents', 'sandboxSession', '@openai/agents'],
])('%s: %s names %s', async (adapter, call, name) => {
  const said = await runThere(`
    import { ${call} } from './provider/adapters/${adapter}.ts'
    try { await ${call}({}) } catch ({ code, message }) { process.stdout.write(code + ' ' + message) }`)
  expect(said).toBe(`SALLYPORT_PACKAGE_MISSING this needs a package that is not installed: \`npm install ${name}\``)
})

test('ai-sdk: tools are plain objects, which need nothing', async () => {
  const said = await runThere(`
    import { sandboxTools } from './provider/adapters/ai-sdk.ts'
    process.stdout.write(Object.keys(sandboxTools({})).join())`)
  expect(said).toBe('exec,read_file,write_file,list_files')
})
