/** Another process on a state folder: revokes what its arguments say, as the command line does. */
import { systemClock } from '../../../proxy/clock.ts'
import { openRevocations } from '../../../proxy/state/revocations.ts'

const [folder = '', kind = '', ...values] = process.argv.slice(2)
const revocations = await openRevocations(folder, systemClock)
for (const value of values) {
  if (kind === 'token') await revocations.revoke({ tokenId: value })
  else if (kind === 'sandbox') await revocations.revoke({ sandbox: value })
  else await revocations.revoke({ tenant: value })
}
revocations.close()
