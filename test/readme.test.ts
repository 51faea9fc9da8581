/** The two commands of the README, run as they are written there, in a copy of the repository as a stranger would have it. */
import { execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

const ROOT = path.resolve(import.meta.dirname, '..')
const readme = fs.readFileSync(path.join(ROOT, 'README.md'), 'utf8')
const blocks = [...readme.matchAll(/^```sh\n([\s\S]*?)^```/gm)].map(([, text = '']) => text.trim())
let folder: string

beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-readme-'))
})
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }))

test('the first two blocks are the two commands, and what decides over a change calls the second', () => {
  expect(blocks.slice(0, 2)).toEqual(['npm ci && npm start', 'npm cit'])
  expect(fs.readFileSync(path.join(ROOT, '.ci/run'), 'utf8')).toMatch(/^npm cit\b/m)
})

describe('the first command', () => {
  test('starts a gateway, and the two lines that it prints do what it says', { timeout: 900_000 }, async () => {
    const files = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
      cwd: ROOT,
      encoding: 'utf8',
    })
    for (const file of files.split('\0').filter((name) => name !== '' && fs.existsSync(path.join(ROOT, name)))) {
      fs.cpSync(path.join(ROOT, file), path.join(folder, file), { recursive: true })
    }
    const npm = spawn('bash', ['-c', blocks[0]!], { cwd: folder, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
    let output = ''
    npm.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
    npm.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()))
    try {
      const lines = await printedLines(() => output, npm)
      expect(paste(lines[0]!)).toMatch(/^HTTP\/1\.1 200 /)
      const refused = paste(lines[1]!)
      expect(refused).toMatch(/^HTTP\/1\.1 403 Host Not Allowed/)
      expect(refused).toContain('x-deny-reason: host_not_allowed')
    } finally {
      const ended = new Promise((resolve) => npm.once('exit', resolve))
      if (npm.exitCode === null) process.kill(-npm.pid!, 'SIGTERM')
      await ended
    }
    expect(fs.existsSync(path.join(folder, '.sallyport/audit'))).toBe(true)
  })
})

/** Waits until both lines are there; ends with what was printed when the command ended first. */
async function printedLines(output: () => string, npm: { readonly exitCode: number | null }): Promise<string[]> {
  for (let tries = 0; tries < 4000; tries++) {
    const lines = output()
      .split('\n')
      .filter((line) => /^\s+curl /.test(line))
      .map((line) => line.trim())
    if (lines.length >= 2 && output().includes('Ctrl-C')) return lines
    if (npm.exitCode !== null) break
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
  throw new Error(`the gateway did not start:\n${output()}`)
}

function paste(line: string): string {
  return execFileSync('bash', ['-c', `${line} -sS`], { encoding: 'utf8' })
}
