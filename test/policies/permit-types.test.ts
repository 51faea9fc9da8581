import { resolve } from 'node:path'
import ts from 'typescript'
import { describe, expect, it } from 'vitest'

const OPTIONS: ts.CompilerOptions = {
  strict: true,
  noEmit: true,
  target: ts.ScriptTarget.ES2023,
  module: ts.ModuleKind.NodeNext,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
  allowImportingTsExtensions: true,
  verbatimModuleSyntax: true,
  skipLibCheck: true,
  types: ['node'],
}

const DIAL = `import type { Allow, Destination, IpAddress, Permit } from '../../policies/index.ts'
  declare function dial(permit: Permit): void
  declare const allow: Allow, destination: Destination, addresses: readonly IpAddress[]\n`

/** Snippets as if they stood beside this file; the message that the compiler must give, or none. */
const SNIPPETS: readonly (readonly [sentence: string, snippet: string, message: RegExp | undefined])[] = [
  ['a permit that was decided can be handed on', `${DIAL} dial(allow.permit)`, undefined],
  ['an object literal is no permit', `${DIAL} dial({ destination, addresses })`, /not assignable to .*'Permit'/],
  ['a spread of a permit is none', `${DIAL} dial({ ...allow.permit })`, /'#issued' is missing/],
  [
    'the private name spelled out helps nothing',
    `${DIAL} dial({ destination, addresses, '#issued': true })`,
    /not assignable|'#issued'/,
  ],
  [
    'the class is not there to be called',
    `${DIAL} import { Permit as Made } from '../../policies/decide.ts'; dial(new Made(destination, addresses))`,
    /export type/,
  ],
  [
    'an address cannot be made by hand',
    `import type { IpAddress } from '../../policies/index.ts'; export const one: IpAddress = { family: 4, bytes: [1, 1, 1, 1], text: '1.1.1.1', bits: '' }`,
    /'#parsed' is missing/,
  ],
  [
    'an address cannot be constructed',
    `import { IpAddress } from '../../policies/index.ts'; new IpAddress([1, 1, 1, 1])`,
    /is private/,
  ],
  [
    'a name cannot be claimed',
    `import type { HostName } from '../../policies/index.ts'; export const name: HostName = 'example.com'`,
    /'string' is not assignable to type 'HostName'/,
  ],
]

function compile(snippets: readonly string[]): readonly (readonly string[])[] {
  const files = new Map(
    snippets.map((snippet, index) => [resolve(import.meta.dirname, `snippet-${index}.ts`), snippet]),
  )
  const host = ts.createCompilerHost(OPTIONS)
  const disk = ts.createCompilerHost(OPTIONS)
  host.fileExists = (name) => files.has(name) || disk.fileExists(name)
  host.getSourceFile = (name, language, ...rest) => {
    const snippet = files.get(name)
    return snippet === undefined
      ? disk.getSourceFile(name, language, ...rest)
      : ts.createSourceFile(name, snippet, language)
  }
  const program = ts.createProgram([...files.keys()], OPTIONS, host)
  return [...files.keys()].map((name) =>
    ts
      .getPreEmitDiagnostics(program, program.getSourceFile(name))
      .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, ' ')),
  )
}

describe('what the types forbid', () => {
  const faults = compile(SNIPPETS.map(([, snippet]) => snippet))

  it.each(SNIPPETS.map(([sentence, , message], index) => [sentence, message, faults[index] ?? []] as const))(
    '%s',
    (_sentence, message, found) => {
      if (message === undefined) expect(found).toEqual([])
      else expect(found.join('\n')).toMatch(message)
    },
  )
})
