/** Which policies of an app hold its machines to one port, and which only look like it. */
import { expect, test } from 'vitest'
import { ensurePolicy, judgePolicies, type NetworkPolicy, sandboxPolicy } from '../../../provider/backends/fly-machines/network-policy.ts' // prettier-ignore

const WANTED = { egress: 3128, ingress: 2024 }
const OURS = sandboxPolicy(WANTED)
const policy = (selector: NetworkPolicy['selector'], rules: NetworkPolicy['rules'], name = 'other'): NetworkPolicy => ({ name, selector, rules }) // prettier-ignore
const egress = (protocol: string, port: number) => ({ action: 'allow', direction: 'egress', ports: [{ protocol, port }] }) // prettier-ignore
const ingress = (port: number) => ({ action: 'allow', direction: 'ingress', ports: [{ protocol: 'tcp', port }] })
const all = { all: true }

const rows: readonly (readonly [string, string, readonly NetworkPolicy[]])[] = [
  ['no policy closes nothing', 'absent', []],
  ['the policy that we make fits', 'fits', [OURS]],
  ['one without a word on ingress fits, since nothing is denied there', 'fits', [policy(all, [egress('tcp', 3128)])]],
  ['one that allows ingress alone leaves egress open', 'absent', [policy(all, [ingress(2024)])]],
  ['one for machines with some metadata leaves the others open', 'absent', [policy({ metadata: { a: 'b' } }, [egress('tcp', 3128)])]], // prettier-ignore
  ['one for machines by their ids leaves those to come open', 'absent', [policy({ machines: [{ id: 'x' }] }, [egress('tcp', 3128)])]], // prettier-ignore
  ['one whose selector selects nothing leaves all open', 'absent', [policy({ all: false }, [egress('tcp', 3128)])]],
  ['one for all machines that have some metadata too leaves the others open', 'absent', [policy({ all: true, metadata: { a: 'b' } }, [egress('tcp', 3128)])]], // prettier-ignore
  ['one that says all, whatever it says beside, may widen', 'wider', [OURS, policy({ all: true, metadata: { 'sallyport-egress': '1' } }, [egress('tcp', 22)])]], // prettier-ignore
  ['another port beside the gateway’s is wider', 'wider', [OURS, policy(all, [egress('tcp', 443)])]],
  ['the port over UDP is wider', 'wider', [OURS, policy(all, [egress('udp', 3128)])]],
  ['names over UDP are wider', 'wider', [policy(all, [egress('tcp', 3128), egress('udp', 53)])]],
  ['another port for machines with some metadata is wider, since ours may have it', 'wider', [OURS, policy({ metadata: { a: 'b' } }, [egress('tcp', 22)])]], // prettier-ignore
  ['another port for one machine by its id is not', 'fits', [OURS, policy({ machines: [{ id: 'x' }] }, [egress('tcp', 22)])]], // prettier-ignore
  ['a list of no machines may be all of them', 'wider', [OURS, policy({ machines: [] }, [egress('tcp', 22)])]],
  ['a rule without ports may be all of them', 'wider', [policy(all, [{ action: 'allow', direction: 'egress' }])]],
  ['a rule with an empty list of ports too', 'wider', [policy(all, [{ action: 'allow', direction: 'egress', ports: [] }])]], // prettier-ignore
  ['a rule of a kind that is not known is not trusted', 'wider', [OURS, policy(all, [{ action: 'deny', direction: 'egress' }])]], // prettier-ignore
  ['a policy that lets nobody reach the worker is of no use', 'narrower', [policy(all, [egress('tcp', 3128), ingress(80)])]], // prettier-ignore
  ['the port of another gateway for all machines is wider', 'wider', [policy(all, [egress('tcp', 3129)])]],
  [
    'the policy of another gateway’s machines is none of ours',
    'absent',
    [sandboxPolicy({ egress: 3129, ingress: 2024 })],
  ],
  ['and does not widen ours', 'fits', [OURS, sandboxPolicy({ egress: 3129, ingress: 2024 })]],
  ['one that wants further metadata beside ours may not hold', 'absent', [policy({ metadata: { ...OURS.selector.metadata, a: 'b' } }, [egress('tcp', 3128)])]], // prettier-ignore
  ['another port for what has further metadata is wider all the same', 'wider', [OURS, policy({ metadata: { ...OURS.selector.metadata, a: 'b' } }, [egress('tcp', 22)])]], // prettier-ignore
]
test.each(rows)('%s', (_sentence, kind, policies) => {
  expect(judgePolicies(policies, WANTED).kind).toBe(kind)
})

test('a policy more never makes what did not fit fit, unless it is the one that closes', () => {
  for (const [, before, policies] of rows)
    for (const [, , [further]] of rows) {
      if (further === undefined || before !== 'wider') continue
      expect(judgePolicies([...policies, further], WANTED).kind).toBe('wider')
    }
})

const app = { app: 'sandboxes', mayCreate: true }
const access = (initial: readonly NetworkPolicy[], keeps = true) => {
  let present = initial
  const made: NetworkPolicy[] = []
  return {
    made,
    policies: () => Promise.resolve(present),
    createPolicy: (each: NetworkPolicy) => {
      made.push(each)
      if (keeps) present = [...present, each]
      return Promise.resolve()
    },
  }
}

test('is made where there is none, and read again before it is believed', async () => {
  const good = access([])
  await ensurePolicy(good, WANTED, app)
  expect(good.made).toEqual([OURS])
  await ensurePolicy(good, WANTED, app)
  expect(good.made).toHaveLength(1)
  // A platform that says yes and keeps nothing.
  await expect(ensurePolicy(access([], false), WANTED, app)).rejects.toMatchObject({ fault: 'network_unsafe', code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED' }) // prettier-ignore
})

test('is refused where there is none and it is not to be made, and where it is wider, which nothing repairs', async () => {
  const absent = access([])
  await expect(ensurePolicy(absent, WANTED, { ...app, mayCreate: false })).rejects.toThrow(/no network policy closes the machines of the app `sandboxes`/) // prettier-ignore
  expect(absent.made).toEqual([])
  const wider = access([policy(all, [egress('tcp', 3128), egress('tcp', 443)])])
  await expect(ensurePolicy(wider, WANTED, app)).rejects.toThrow(/egress to tcp\/443.*tcp\/3128 alone/)
  expect(wider.made).toEqual([])
})
