/**
 * What does counting cost a tunnel? All that is counted for one that is let out, set up and ended, the readings of the clock included:
 * `node bench/metrics.ts`. CPU time of this process, so other load shows little.
 */
import { createMetrics } from '../proxy/admin/metrics.ts'

const ROUNDS = 2_000_000

const dns = { hits: 0, misses: 0 }
const metrics = createMetrics({ version: 'bench', activeTunnels: () => 0, caches: { dns } })
const end = { closeReason: 'client_closed', durationMs: 1234.5, bytesIn: 5000, bytesOut: 700 } as const

function countTunnel(): void {
  const startedMs = performance.now()
  const identityMs = performance.now() - startedMs
  const policyMs = performance.now() - startedMs - identityMs
  dns.hits++
  metrics.countAuditLines(1)
  metrics.countConnection('connect', 'allow')
  const totalMs = performance.now() - startedMs
  metrics.countSetUp({ identityMs, policyMs, dnsMs: 0, connectMs: 12.5, totalMs })
  metrics.countAuditLines(1)
  metrics.countTunnel(end)
}

for (let round = 0; round < ROUNDS / 4; round += 1) countTunnel()
const before = process.cpuUsage()
for (let round = 0; round < ROUNDS; round += 1) countTunnel()
const { user, system } = process.cpuUsage(before)
process.stdout.write(`${Math.round(((user + system) * 1000) / ROUNDS)} ns a tunnel\n`)
metrics.close()
