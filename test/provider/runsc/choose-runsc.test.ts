/** Which of an engine's runtimes is taken for gVisor. */
import { describe, expect, test } from 'vitest'
import { chooseRunsc } from '../../../provider/backends/runsc.ts'
import type { EngineRuntime } from '../../../provider/backends/engine-facts.ts'

const runtime = (
  name: string,
  path: string | undefined,
  args: readonly string[] = [],
  type?: string,
): EngineRuntime => ({ name, path, args, type })
const RUNC = runtime('runc', 'runc')
const PLAIN = runtime('runsc', '/usr/bin/runsc')
const OPEN = runtime('gvisor', '/usr/local/bin/runsc', ['--network=none', '--host-uds=open'])
const NETWORKED = runtime('runsc-net', '/usr/bin/runsc', ['--host-uds=all'])
const WRAPPER = runtime('runsc-ns', '/opt/runsc-ns')
const SHIM = runtime('runsc', undefined, [], 'io.containerd.runsc.v1')

describe('the runtime', () => {
  test.each<[string, readonly EngineRuntime[], string | undefined, 'none' | 'internal', string]>([
    ['the one that may open host sockets', [RUNC, PLAIN, OPEN], undefined, 'none', 'gvisor'],
    ['one that starts on any kernel before one that may not', [NETWORKED, OPEN], undefined, 'none', 'gvisor'],
    ['one that says what is needed before one of which nothing is known', [WRAPPER, OPEN], undefined, 'none', 'gvisor'],
    ['a wrapper, when there is nothing better', [RUNC, PLAIN, WRAPPER], undefined, 'none', 'runsc-ns'],
    ['containerd’s own', [SHIM], undefined, 'none', 'runsc'],
    ['the one that was named', [OPEN, NETWORKED], 'runsc-net', 'none', 'runsc-net'],
    ['one with a network, where there is to be one', [OPEN, NETWORKED], undefined, 'internal', 'runsc-net'],
  ])('is %s', (_what, runtimes, name, network, expected) => {
    expect(chooseRunsc({ runtimes }, name, network)).toBe(expected)
  })

  test.each<[string, readonly EngineRuntime[], string | undefined, 'none' | 'internal', string]>([
    ['there is none', [RUNC], undefined, 'none', 'runtime_missing'],
    ['the one that was named is not there', [OPEN], 'other', 'none', 'runtime_missing'],
    ['it may not open host sockets', [PLAIN], undefined, 'none', 'runtime_unusable'],
    ['it has no network where there is to be one', [OPEN], undefined, 'internal', 'runtime_unusable'],
  ])('is refused when %s', (_what, runtimes, name, network, fault) => {
    expect(() => chooseRunsc({ runtimes }, name, network)).toThrow(
      expect.objectContaining({ fault, code: 'SALLYPORT_SANDBOX_BACKEND_MISSING' }) as Error,
    )
  })
})
