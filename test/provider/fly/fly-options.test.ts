/** What the options of the backend for Fly may be; nothing is asked of the platform for that. */
import { expect, test } from 'vitest'
import { createSandboxProvider, type FlyMachinesBackendConfig } from '../../../provider/index.ts'
import { createFlyMachinesBackend } from '../../../provider/backends/fly-machines.ts'

const GOOD = { apiToken: 'fm2_marker-of-a-token', app: 'sandboxes', image: 'registry.fly.io/sandboxes:1' }

const bad: readonly (readonly [string, object, RegExp])[] = [
  ['a token that is missing', { apiToken: undefined }, /`apiToken`/],
  ['a token with a line end', { apiToken: 'fm2_marker-of-a-token\nx' }, /`apiToken`/],
  ['an app that would leave its path', { app: '../other' }, /`app`/],
  ['an app that is missing', { app: '' }, /`app`/],
  ['an image that is missing', { image: '' }, /`image`/],
  ['an image that is none', { image: 'a b' }, /`image`/],
  ['a region that is none', { region: 'Frankfurt' }, /`region`/],
  ['memory that machines do not have', { memoryLimitMb: 300 }, /multiple of 256/],
  ['no processor', { cpus: 0 }, /`cpus`/],
  ['another kind of processor', { cpuKind: 'quantum' }, /`cpuKind`/],
  ['no process', { maxProcesses: 1 }, /`maxProcesses`/],
  ['no targets to try', { directTargets: [] }, /`directTargets`/],
  ['a target that is a name', { directTargets: [{ host: 'example.com', port: 443 }] }, /literal/],
  ['a policy that is none', { networkPolicy: 'off' }, /`networkPolicy`/],
  ['a time that is none', { startTimeoutMs: 0 }, /`startTimeoutMs`/],
  ['an API to which the token would go in the clear', { apiUrl: 'http://api.example' }, /https:/],
  ['an API with credentials in its address', { apiUrl: 'https://a:b@api.example' }, /without credentials/],
]
test.each(bad)('refuses %s', (_sentence, more, message) => {
  const make = () => createFlyMachinesBackend({ ...GOOD, ...more })
  expect(make).toThrow(TypeError)
  expect(make).toThrow(message)
  try {
    make()
  } catch (error) {
    expect(String(error)).not.toContain('marker')
  }
})

test('says what is enforced, and by whom', () => {
  const { capabilities, egress } = createFlyMachinesBackend(GOOD)
  expect(capabilities.enforcement).toBe('platform-port+guest')
  expect(egress).toBe('token')
  expect(capabilities.leftOpen.join(' ')).toMatch(/no other address .* is a rule inside the machine/)
})

test('wants a gateway that machines elsewhere reach', () => {
  const backend: FlyMachinesBackendConfig = { tier: 'microvm', service: 'fly-machines', ...GOOD }
  expect(() => createSandboxProvider({ backend })).toThrow(/reach a gateway over the network alone/)
})
