/** `docs/errors.md` lists every reason, close reason and code, and no other. */
import fs from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { DockerError, type DockerFault, PlatformError, type PlatformFault } from '../provider/index.ts'
import { ALL_REASONS, CLOSE_REASONS, describeReason, reasonPhrase } from '../proxy/reasons.ts'

const ROOT = path.resolve(import.meta.dirname, '..')
const sections = fs.readFileSync(path.join(ROOT, 'docs/errors.md'), 'utf8').split(/^## /m)

function rows(title: string): string[][] {
  const section = sections.find((each) => each.startsWith(`${title}\n`)) ?? ''
  const lines = section.split('\n').filter((line) => line.startsWith('| `'))
  return lines.map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim().replaceAll('`', '')),
  )
}

test('every reason, with the status, phrase, error and reply that the client gets', () => {
  const documented = rows('Reasons').map(([reason, status, phrase, proxyStatus, socks]) => [
    reason,
    status,
    phrase,
    proxyStatus,
    socks,
  ])
  const real = ALL_REASONS.map((reason) => {
    const { status, proxyStatus, socks } = describeReason(reason)
    return [reason, String(status), reasonPhrase(reason), proxyStatus, String(socks)]
  })
  expect(documented).toEqual(real)
})

test('every close reason', () => {
  expect(rows('Close reasons').map(([reason]) => reason)).toEqual([...CLOSE_REASONS])
})

test('every code', () => {
  const union = fs.readFileSync(path.join(ROOT, 'policies/error.ts'), 'utf8')
  const codes = [...union.matchAll(/\| '(SALLYPORT_[A-Z_]+)'/g)].map(([, code]) => code)
  expect(
    rows('Codes')
      .map(([code]) => code)
      .sort(),
  ).toEqual(codes.sort())
})

test('every fault of an engine, with its code', () => {
  const declared = fs.readFileSync(path.join(ROOT, 'provider/backends/docker-error.ts'), 'utf8')
  const faults = [...declared.matchAll(/^ {2}\| '([a-z_]+)'$/gm)].map(([, fault]) => fault as DockerFault)
  expect(faults.length).toBeGreaterThan(10)
  expect(rows('Faults of an engine').map(([fault, code]) => [fault, code])).toEqual(
    faults.map((fault) => [fault, new DockerError(fault, '').code]),
  )
})

test('every fault of a platform, with its code', () => {
  const declared = fs.readFileSync(path.join(ROOT, 'provider/backends/platform/platform-error.ts'), 'utf8')
  const faults = [...declared.matchAll(/^ {2}\| '([a-z_]+)'$/gm)].map(([, fault]) => fault as PlatformFault)
  expect(faults.length).toBeGreaterThan(10)
  expect(rows('Faults of a platform').map(([fault, code]) => [fault, code])).toEqual(
    faults.map((fault) => [fault, new PlatformError(fault, '').code]),
  )
})
