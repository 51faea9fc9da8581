/** A process under load that is killed: writes lines as fast as it can and says on its standard output which are acknowledged. Stopped by its parent. */
import { writeSync } from 'node:fs'
import { parseSigningKey } from '../../../proxy/audit/key.ts'
import { openAuditLog } from '../../../proxy/audit/log.ts'
import { systemClock } from '../../../proxy/clock.ts'

const [path = '', from = '1'] = process.argv.slice(2)
const log = await openAuditLog({
  path,
  instance: 'gw',
  onFailure: 'deny',
  signingKey: parseSigningKey(process.env['AUDIT_KEY'] ?? '', 'AUDIT_KEY'),
  maxFileBytes: 256 * 1024,
  checkpointMs: 20,
  clock: systemClock,
})

for (let number = Number(from); ;) {
  const turn = Array.from({ length: 1 + (number % 40) }, () => number++)
  await Promise.all(turn.map(acknowledge))
}

async function acknowledge(number: number): Promise<void> {
  const isWritten = await log.write({
    kind: 'decision',
    decision: 'allow',
    effective: 'allow',
    request_id: `req_${number}`,
    host: 'api.example.com',
    port: 443,
  })
  // What a client's answer is for the gateway: it can't be taken back.
  if (isWritten) writeSync(1, `${number}\n`)
}
