/** A reload lets the policies of before go: a gateway that is reloaded for months must not hold all that it ever had. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it } from 'vitest'
import { createPolicySource, type PolicySource } from '../../../proxy/policy/policy-source.ts'
import type { Identity } from '../../../proxy/tokens/identity.ts'

it('what a reload replaces is forgotten, also after many', async () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const sectionOf = (at: number) => ({ ceiling: { kind: 'static' as const, allowedHosts: [`h${at}.example.test`] } })
  const source = createPolicySource({ policy: sectionOf(0) })
  const held: WeakRef<object>[] = [ceilingOf(source)]
  for (let at = 1; at <= 5; at++) {
    source.replace(sectionOf(at))
    held.push(ceilingOf(source))
  }
  await expect
    .poll(
      () => {
        collect()
        return held.slice(0, -1).filter((one) => one.deref() !== undefined).length
      },
      { timeout: 20_000 },
    )
    .toBe(0)
  expect(held.at(-1)?.deref()).toBeDefined()
  source.close()
})

/** Asked by somebody who is gone then. */
function ceilingOf(source: PolicySource): WeakRef<object> {
  const asked = { issuer: 'i', claim: { kind: 'allow-all' } } as unknown as Identity
  const found = source.layersFor(asked)
  if (found instanceof Promise) throw new TypeError('a fixed policy is known at once')
  return new WeakRef(found.layers[0]!.policy)
}
