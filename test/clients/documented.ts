/** The examples of docs/clients.md as programs to run: what the page says is what is tested. Only the example's host is replaced. */
import fs from 'node:fs'
import type { Target } from './fixture.ts'
import { pythonInterpreter } from './installed.ts'
import type { Program } from './program.ts'

export interface Example {
  /** The second word behind the fence. */
  readonly name: string
  readonly language: string
  readonly text: string
}

const PAGE = new URL('../../docs/clients.md', import.meta.url)
const HOST = 'api.example.com'

/** Every fenced block with a name. */
export function readExamples(): readonly Example[] {
  const page = fs.readFileSync(PAGE, 'utf8')
  return [...page.matchAll(/^```(\w+) ([\w-]+)\n([\s\S]*?)^```$/gm)].map(([, language, name, text]) => ({
    language: language!,
    name: name!,
    text: text!,
  }))
}

/** The text of an example with `target` in place of the host that it names. */
export function exampleText(name: string, target: Target): string {
  const example = readExamples().find((one) => one.name === name)
  if (!example) throw new Error(`docs/clients.md has no example \`${name}\``)
  return example.text
    .replaceAll(new RegExp(`(https|wss)://${HOST}`, 'g'), `$1://${target.host}:${target.tlsPort}`)
    .replaceAll(new RegExp(`(http|ws)://${HOST}`, 'g'), `$1://${target.host}:${target.plainPort}`)
    .replaceAll(`${HOST}:443`, `${target.host}:${target.tlsPort}`)
    .replaceAll(HOST, target.host)
}

/** An example as a program; `env` is laid over what the fixture gives every client. */
export function example(name: string, target: Target, env: Readonly<Record<string, string>> = {}): Program {
  const text = exampleText(name, target)
  return { argv: interpreterOf(name)(text), env }
}

function interpreterOf(name: string): (text: string) => Program['argv'] {
  const language = readExamples().find((one) => one.name === name)?.language
  switch (language) {
    case 'sh':
      return (text) => ['bash', '--norc', '-euc', text]
    case 'js':
      return (text) => [process.execPath, '--input-type=module', '--eval', text]
    case 'py':
      return (text) => [pythonInterpreter(), '-c', text]
    default:
      throw new Error(`no interpreter for the example \`${name}\` in \`${language ?? ''}\``)
  }
}
