/** Ways out through a gateway in this process: a bound listener for each sandbox, which stands for its identity. No token exists. */
import { chmod } from 'node:fs/promises'
import type { Gateway } from '../../proxy/index.ts'
import type { Egress } from './egress.ts'
import { askedPolicy } from './resolved-policy.ts'

/** Leaves the gateway to whoever made it. */
export function boundEgress(gateway: Gateway): Egress {
  return {
    open: async ({ sandbox, tenant, policy, socketPath }) => {
      const bound = await gateway.bind({
        path: socketPath,
        identity: { sandbox, tenant, egress: await askedPolicy(policy) },
      })
      try {
        // Whoever the sandbox runs as; on the host the folders above keep others out.
        await chmod(socketPath, 0o666)
      } catch (error) {
        await bound.close()
        throw error
      }
      let closing: Promise<void> | undefined
      return {
        setPolicy: async (next) => {
          const asked = await askedPolicy(next)
          // A resolver takes its time; what was closed meanwhile stays closed.
          if (closing === undefined) bound.setEgress(asked)
        },
        close: () => (closing ??= bound.close()),
      }
    },
    close: () => Promise.resolve(),
  }
}
