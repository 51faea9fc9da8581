/** What the audit tests share: folders, a log with short timers, entries of every kind, and readers that do not use the code under test. */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync, mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { generateAuditKey } from '../../../proxy/audit/key.ts'
import { type AuditLogOptions, openAuditLog } from '../../../proxy/audit/log.ts'
import type { AuditEntry, AuditLog, DecisionEntry } from '../../../proxy/audit/record.ts'
import { systemClock } from '../../../proxy/clock.ts'

export const testKey = generateAuditKey()

export function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-audit-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Opens a log that is closed when the test ends. */
export async function openTestLog(path: string, options: Partial<AuditLogOptions> = {}): Promise<AuditLog> {
  const log = await openAuditLog({
    path,
    instance: 'gw',
    onFailure: 'deny',
    signingKey: testKey.key,
    clock: systemClock,
    retryMs: 10,
    ...options,
  })
  onTestFinished(() => log.close())
  return log
}

export function decision(fields: Partial<DecisionEntry> = {}): DecisionEntry {
  return {
    kind: 'decision',
    decision: 'allow',
    effective: 'allow',
    rule: '*.example.com',
    policy_version: 'v1',
    request_id: 'req_1',
    tenant: 'acme',
    sandbox: 'sbx_1',
    token_id: 'tok_1',
    issuer: 'https://host.example',
    key_id: 'k1',
    dialect: 'connect',
    requested: 'api.example.com:443',
    host: 'api.example.com',
    port: 443,
    client: '127.0.0.1:50000',
    resolved: ['203.0.113.7'],
    dialled: '203.0.113.7:443',
    dns_ms: 1.5,
    connect_ms: 12,
    ...fields,
  }
}

/** `count` decisions, numbered from `from` in their request id. */
export function decisions(count: number, from = 1): AuditEntry[] {
  return Array.from({ length: count }, (_, index) => decision({ request_id: `req_${from + index}` }))
}

export async function writeAll(log: AuditLog, entries: readonly AuditEntry[]): Promise<boolean[]> {
  return Promise.all(entries.map((entry) => log.write(entry)))
}

export function logFiles(folder: string): string[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl'))
    .sort()
    .map((name) => join(folder, name))
}

export interface RawLine {
  readonly seq: number
  readonly kind: string
  readonly prev: string
  readonly action?: string
  readonly request_id?: string
  readonly requested?: string
  readonly effective?: string
  readonly reason?: string
  readonly lost?: number
  readonly previous?: string
  readonly torn_bytes?: number
  readonly detail?: string
  readonly cause?: string
}

/** Every whole line of a folder, file by file. */
export function readAll(folder: string): RawLine[] {
  return logFiles(folder).flatMap(readOne)
}

/** Every whole line of a file. */
export function readOne(path: string): RawLine[] {
  return rawLines(path).map((line) => JSON.parse(line) as RawLine)
}

/** The whole lines of a file, with their newlines. */
export function rawLines(path: string): string[] {
  return readFileSync(path, 'latin1').match(/[^\n]*\n/g) ?? []
}

/** Makes the chain of changed lines anew, as an attacker without the key would: hashes fit, signatures stay. */
export function rechain(lines: readonly string[], prev: string): string[] {
  let head = prev
  return lines.map((line) => {
    const chained = line.replace(/"prev":"[0-9a-f]{64}"/, `"prev":"${head}"`)
    head = createHash('sha256').update(chained, 'latin1').digest('hex')
    return chained
  })
}

/** Resolves when `check` holds; polls, since what is waited for happens in the file system. */
export async function until(check: () => boolean, what: string): Promise<void> {
  for (const deadline = Date.now() + 20_000; !check();) {
    if (Date.now() > deadline) throw new Error(`not within 20 s: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

/** A file system of its own that can be filled and remounted. */
export interface Mounted {
  readonly path: string
  readonly remount: (options: string) => void
}

/** Mounts a tmpfs; undefined, with a printed reason, where that isn't permitted. With CI=true that is a failure. */
export function mountTmpfs(size: string): Mounted | undefined {
  const path = mkdtempSync(join(tmpdir(), 'sallyport-audit-disk-'))
  onTestFinished(() => rmSync(path, { recursive: true, force: true }))
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'none', path], { encoding: 'utf8' })
  if (mounted.status !== 0) {
    const reason = `a small file system can't be mounted here: ${mounted.error?.message ?? mounted.stderr.trim()}`
    if (process.env['CI'] === 'true') throw new Error(reason)
    console.log(`skipped: ${reason}`)
    return undefined
  }
  onTestFinished(() => void spawnSync('umount', ['-l', path]))
  return {
    path,
    remount: (options) => {
      const { status, stderr } = spawnSync('mount', ['-o', `remount,${options}`, path], { encoding: 'utf8' })
      if (status !== 0) throw new Error(`remount: ${stderr}`)
    },
  }
}

/** All that an iterable gives. */
export async function collect<T>(source: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = []
  for await (const item of source) items.push(item)
  return items
}

export function subfolder(path: string): string {
  const folder = join(path, 'audit')
  mkdirSync(folder, { recursive: true })
  return folder
}
