/** What one audit line costs: CPU of writing a `decision`, by how many lines share a turn of the event loop. `node bench/audit-line.ts` */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateAuditKey } from '../proxy/audit/key.ts'
import { openAuditLog } from '../proxy/audit/log.ts'
import type { AuditEntry } from '../proxy/audit/record.ts'
import { systemClock } from '../proxy/clock.ts'

const LINES = 100_000
const folder = mkdtempSync(join(tmpdir(), 'sallyport-bench-'))
const { key } = generateAuditKey()
const log = await openAuditLog({
  path: folder,
  instance: 'bench',
  onFailure: 'deny',
  signingKey: key,
  clock: systemClock,
})

for (const perTurn of [1, 1, 4, 16, 64, 256]) {
  const before = process.cpuUsage()
  for (let line = 0; line < LINES; line += perTurn)
    await Promise.all(Array.from({ length: perTurn }, (_, index) => log.write(entry(line + index))))
  const { user, system } = process.cpuUsage(before)
  process.stdout.write(`${perTurn} lines a turn: ${((user + system) / LINES).toFixed(1)} us of CPU a line\n`)
}
await log.close()
rmSync(folder, { recursive: true })

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
