import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Command } from 'commander'
import ts from 'typescript'
import { expect, test } from 'vitest'
import { createProgram } from '../../../proxy/cli/main.ts'
import { nodeVersionFault } from '../../../proxy/cli/node-version.ts'
import { runBinary, runMain, temporaryFolder } from './run-cli.ts'

function commands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(commands)]
}

const terminal = {
  out: () => undefined,
  err: () => undefined,
  environment: {},
  readInput: () => Promise.resolve(''),
  signal: new AbortController().signal,
}
const all = commands(await createProgram(terminal, () => undefined))

test('there are the commands that the documentation names', () => {
  const names = all.map((command) =>
    [command.parent?.name(), command.name()].filter((name) => name !== undefined && name !== 'sallyport').join(' '),
  )
  expect(names).toEqual(
    expect.arrayContaining([
      'serve',
      'token mint',
      'token inspect',
      'token revoke',
      'keys generate',
      'keys list',
      'keys rotate',
      'policy check',
      'policy explain',
      'policy presets',
      'policy test',
      'audit tail',
      'audit query',
      'audit verify',
      'audit export',
      'env',
      'doctor',
    ]),
  )
})

test.each(all.map((command) => [command.name(), command] as const))(
  'the help of %s has an example that names it',
  (name, command) => {
    let text = ''
    command.configureOutput({ writeOut: (chunk) => (text += chunk) })
    command.outputHelp()
    expect(text).toMatch(/\nExamples?:\n {2}\$ sallyport /)
    expect(text.slice(text.indexOf('Example'))).toContain(name)
  },
)

test.each([
  ['an unknown command', ['srve'], "unknown command 'srve'"],
  ['an unknown option', ['serve', '--confg', 'x'], "unknown option '--confg'"],
  ['a missing argument', ['policy', 'check'], "missing required argument 'file'"],
  ['a choice that is none', ['env', '--format', 'xml'], 'Allowed choices are sh, dotenv, json, docker'],
  ['a group without a command', ['token'], 'Usage: sallyport token'],
])('%s is wrong usage', async (_name, args, message) => {
  const { code, stderr } = await runMain(args)
  expect(stderr).toContain(message)
  expect(code).toBe(3)
})

test('a slip is told with what was meant', async () => {
  expect((await runMain(['srve'])).stderr).toContain('Did you mean serve?')
})

test('the real binary prints its version and its help', async () => {
  const version = await runBinary(['--version'])
  expect(version).toEqual({ code: 0, stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) as string, stderr: '' })
  const help = await runBinary(['token', 'mint', '--help'])
  expect(help.code).toBe(0)
  expect(help.stdout).toContain('--sandbox')
})

test.each([
  ['v18.0.0', false],
  ['v20.20.2', false],
  ['v22.11.9', false],
  ['v22.12.0', true],
  ['v24.0.0', true],
])('Node %s will do: %s', (version, isEnough) => {
  const fault = nodeVersionFault(version)
  expect(fault).toBe(isEnough ? undefined : `sallyport needs Node 22.12 or newer; this is ${version}`)
})

const OLD_NODE = ['/usr/bin/node', '/usr/local/bin/node'].find((path) => isOld(path))

function isOld(path: string): boolean {
  if (!existsSync(path)) return false
  return nodeVersionFault(execFileSync(path, ['--version']).toString().trim()) !== undefined
}

test.skipIf(OLD_NODE === undefined)(
  'an old Node says one clear line, and loads nothing else (skipped: this machine has no old Node)',
  () => {
    const folder = temporaryFolder()
    for (const name of ['provider/cli/bin', 'proxy/cli/node-version']) {
      const source = readFileSync(join(import.meta.dirname, `../../../${name}.ts`), 'utf8')
      const { outputText } = ts.transpileModule(source, {
        compilerOptions: {
          module: ts.ModuleKind.ESNext,
          target: ts.ScriptTarget.ES2023,
          rewriteRelativeImportExtensions: true,
        },
      })
      mkdirSync(join(folder.path, dirname(name)), { recursive: true })
      writeFileSync(join(folder.path, `${name}.js`), outputText)
    }
    writeFileSync(join(folder.path, 'package.json'), '{ "type": "module" }')
    const { status, stderr, stdout } = spawnSync(OLD_NODE ?? '', [join(folder.path, 'provider/cli/bin.js'), 'serve'], {
      encoding: 'utf8',
    })
    folder.close()
    expect(stderr).toMatch(/^sallyport needs Node 22\.12 or newer; this is v\d+\.\d+\.\d+\n$/)
    expect([status, stdout]).toEqual([1, ''])
  },
)
