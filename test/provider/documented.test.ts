/** The examples of docs/provider.md: all of them typecheck, and those that a block of output follows print it. */
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { describeNeeding } from './needs.ts'
import { typeFaults } from './typecheck.ts'

const ROOT = path.join(import.meta.dirname, '../..')
const page = fs.readFileSync(path.join(ROOT, 'docs/provider.md'), 'utf8')
const examples = [...page.matchAll(/^```ts\n([\s\S]*?)^```\n(?:\n```text\n([\s\S]*?)^```)?/gm)].map(
  ([, code = '', output], index) => ({
    file: `example-${index}.ts`,
    // As whoever installed the package writes it; here it is the sources.
    code: code.replaceAll(/'sallyport(\/provider\/conformance)?'/g, (_all, conformance: string | undefined) =>
      JSON.stringify(
        path.join(ROOT, conformance === undefined ? 'provider/index.ts' : 'provider/conformance/index.ts'),
      ),
    ),
    output,
  }),
)

let folder: string
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spx-'))
  fs.writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}')
  for (const { file, code } of examples) fs.writeFileSync(path.join(folder, file), code)
})
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }))

test('they typecheck', { timeout: 180_000 }, () => {
  expect(typeFaults(examples.map(({ file }) => path.join(folder, file)))).toEqual([])
})

describeNeeding(['bubblewrap', 'curl'], 'what they print', () => {
  const printing = examples.filter(({ output }) => output !== undefined)

  test('most of them print something', () => {
    expect(printing.length).toBeGreaterThanOrEqual(5)
  })

  test.each(printing.map(({ file, output }) => [file, output] as const))(
    '%s',
    { timeout: 120_000 },
    async (file, output) => {
      const env = { PATH: process.env['PATH'], HOME: process.env['HOME'], XDG_RUNTIME_DIR: folder }
      const { stdout } = await promisify(execFile)(process.execPath, [path.join(folder, file)], { env })
      expect(stdout).toBe(output)
    },
  )
})
