/** Every command that sandboxes add has a help with an example, beside those of the gateway. */
import type { Command } from 'commander'
import { expect, test } from 'vitest'
import { SANDBOX_COMMANDS } from '../../../provider/cli/main.ts'
import { createProgram } from '../../../proxy/cli/main.ts'

const terminal = {
  out: () => undefined,
  err: () => undefined,
  environment: {},
  readInput: () => Promise.resolve(''),
  signal: new AbortController().signal,
}
const program = await createProgram(terminal, () => undefined, SANDBOX_COMMANDS)
const added = ['run', 'sandbox', 'microvm', 'mcp'].map((name) =>
  program.commands.find((command) => command.name() === name),
)
const all = added.flatMap((command) => (command === undefined ? [] : [command, ...command.commands]))

test('they are there, and those of the gateway too', () => {
  expect(all.map((command) => command.name())).toEqual(['run', 'sandbox', 'list', 'reap', 'microvm', 'snapshot', 'mcp'])
  expect(program.commands.map((command) => command.name())).toEqual(expect.arrayContaining(['serve', 'doctor']))
})

test.each(all.map((command): [string, Command] => [command.name(), command]))(
  'the help of %s has an example that names it',
  (name, command) => {
    let text = ''
    command.configureOutput({ writeOut: (chunk) => (text += chunk) })
    command.outputHelp()
    expect(text).toMatch(/\nExamples?:\n {2}\$ sallyport /)
    expect(text.slice(text.indexOf('Example'))).toContain(name)
  },
)
