/**
 * What one audit line costs: processor time of writing a `decision`, by `audit.sync` and by how many lines share a turn of the event loop; and how many a
 * second that is. `taskset -c 1 node bench/audit-line.ts [--folder FOLDER]`; the folder says which disk.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { generateAuditKey } from '../proxy/audit/key.ts'
import { openAuditLog } from '../proxy/audit/log.ts'
import type { AuditEntry } from '../proxy/audit/record.ts'
import { systemClock } from '../proxy/clock.ts'

const LINES = 100_000
/** A disk takes milliseconds for each turn. */
const MOST_TURNS = 2_000
const { values } = parseArgs({ options: { folder: { type: 'string', default: tmpdir() } } })
const { key } = generateAuditKey()

for (const sync of ['os', 'interval', 'each'] as const) {
  const folder = mkdtempSync(join(values.folder, 'sallyport-bench-'))
  const log = await openAuditLog({
    path: folder,
    instance: 'bench',
    onFailure: 'deny',
    signingKey: key,
    sync,
    clock: systemClock,
  })
  // The first time is for the compiler.
  for (const perTurn of [64, 1, 4, 16, 64, 256]) {
    const lines = sync === 'each' ? Math.min(LINES, MOST_TURNS * perTurn) : LINES
    const before = process.cpuUsage()
    const startedMs = performance.now()
    for (let line = 0; line < lines; line += perTurn)
      await Promise.all(Array.from({ length: perTurn }, (_, index) => log.write(entry(line + index))))
    const { user, system } = process.cpuUsage(before)
    const us = (user + system) / lines
    process.stdout.write(
      `${sync}, ${perTurn} lines a turn: ${us.toFixed(1)} us of processor time a line, ${Math.round(1e6 / us)} a second of it; ` +
        `${Math.round((1000 * lines) / (performance.now() - startedMs))} a second by the clock\n`,
    )
  }
  await log.close()
  rmSync(folder, { recursive: true })
}

function entry(number: number): AuditEntry {
  return {
    kind: 'decision',
    decision: 'allow',
    effective: 'allow',
    rule: '*.example.com',
    policy_version: 'abcdef012345',
    request_id: `req_${number.toString(36)}`,
    tenant: 'acme',
    sandbox: 'sbx_0123456789',
    token_id: 'tok_abcdefghijkl',
    issuer: 'https://host.example',
    key_id: 'k1',
    dialect: 'connect',
    requested: 'api.example.com:443',
    host: 'api.example.com',
    port: 443,
    resolved: ['203.0.113.7', '203.0.113.8'],
    dialled: '203.0.113.7:443',
    client: '10.0.0.1:54321',
    dns_ms: 1.234,
    connect_ms: 12.5,
  }
}
