/** The direction of dependency is checked, and the check is awake. */
import { execFileSync, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

const ROOT = path.resolve(import.meta.dirname, '..')
const DEPCRUISE = path.join(ROOT, 'node_modules/.bin/depcruise')
let folder: string

/** Runs the checker of this repository over a tree that holds only `files`. */
function cruise(files: Record<string, string>) {
  fs.rmSync(folder, { recursive: true, force: true })
  for (const [name, text] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(folder, name)), { recursive: true })
    fs.writeFileSync(path.join(folder, name), text)
  }
  for (const name of ['.dependency-cruiser.cjs', 'tsconfig.json', 'package.json'])
    fs.copyFileSync(path.join(ROOT, name), path.join(folder, name))
  fs.symlinkSync(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'))
  const run = spawnSync(process.execPath, [DEPCRUISE, '--config', '.dependency-cruiser.cjs', ...Object.keys(files)], {
    cwd: folder,
    encoding: 'utf8',
  })
  return { status: run.status, output: run.stdout + run.stderr }
}

beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-architecture-'))
})
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }))

describe('a planted violation is found', () => {
  test.each([
    ['policies-are-pure', { 'policies/a.ts': "import fs from 'node:fs'\nexport const a = fs\n" }],
    [
      'policies-are-pure',
      {
        'policies/a.ts': "import { b } from '../proxy/b.ts'\nexport const a = b\n",
        'proxy/b.ts': 'export const b = 1\n',
      },
    ],
    ['policies-few-libraries', { 'policies/a.ts': "import { pino } from 'pino'\nexport const a = pino\n" }],
    [
      'proxy-knows-no-provider',
      {
        'proxy/a.ts': "import { b } from '../provider/b.ts'\nexport const a = b\n",
        'provider/b.ts': 'export const b = 1\n',
      },
    ],
    [
      'provider-by-the-front-door',
      {
        'provider/a.ts': "import { b } from '../proxy/b.ts'\nexport const a = b\n",
        'proxy/b.ts': 'export const b = 1\n',
      },
    ],
    [
      'command-line-by-the-front-door',
      {
        'provider/cli/a.ts': "import { b } from '../../proxy/egress/b.ts'\nexport const a = b\n",
        'proxy/egress/b.ts': 'export const b = 1\n',
      },
    ],
    [
      'deploy-is-imported-by-nothing',
      {
        'provider/a.ts': "import { b } from '../deploy/b.ts'\nexport const a = b\n",
        'deploy/b.ts': 'export const b = 1\n',
      },
    ],
    [
      'no-circle',
      {
        'proxy/a.ts': "import { b } from './b.ts'\nexport const a = () => b\n",
        'proxy/b.ts': "import { a } from './a.ts'\nexport const b = () => a\n",
      },
    ],
    [
      'console-knows-types-alone',
      {
        'proxy/console/a.tsx': "import { b } from '../b.ts'\nexport const a = b\n",
        'proxy/b.ts': 'export const b = 1\n',
      },
    ],
    [
      'console-knows-types-alone',
      {
        'proxy/console/a.ts': "import fs from 'node:fs'\nexport const a = fs\n",
        'proxy/index.ts': 'export const b = 1\n',
      },
    ],
    [
      'console-is-served-not-imported',
      {
        'proxy/a.ts': "import { b } from './console/b.ts'\nexport const a = b\n",
        'proxy/console/b.ts': 'export const b = 1\n',
      },
    ],
    ['no-development-library-in-the-product', { 'proxy/a.ts': "import fc from 'fast-check'\nexport const a = fc\n" }],
  ])('%s', (rule, files) => {
    const { status, output } = cruise(files)
    expect(output).toContain(rule)
    expect(status).not.toBe(0)
  })

  test('and a tree without one passes', () => {
    const { status, output } = cruise({
      'policies/a.ts': 'export const a = 1\n',
      'proxy/index.ts': "import fs from 'node:fs'\nimport { a } from '../policies/a.ts'\nexport const b = [a, fs]\n",
      'provider/c.ts': "import { b } from '../proxy/index.ts'\nexport const c = b\n",
      'proxy/shape.ts': 'export type Shape = { readonly a: number }\n',
      'proxy/console/d.tsx':
        "import { signal } from '@preact/signals'\nimport type { Shape } from '../shape.ts'\nexport const d = signal<Shape>({ a: 1 })\n",
    })
    expect(output).toContain('no dependency violations found')
    expect(status).toBe(0)
  })
})

test('npm scripts run on the pinned Node', () => {
  const { devDependencies } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
    devDependencies: Record<string, string>
  }
  expect(process.version).toBe(`v${devDependencies['node'] ?? ''}`)
  const printed = execFileSync('npm', ['exec', '--', 'node', '-p', 'process.version'], { cwd: ROOT, encoding: 'utf8' })
  expect(printed.trim()).toBe(process.version)
})
