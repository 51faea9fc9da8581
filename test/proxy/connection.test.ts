/** What is left when something that only listens fails: nothing may stay open, and no place under the limits may stay taken. */
import { describe, expect, test } from 'vitest'
import { systemClock } from '../../proxy/clock.ts'
import { type Gate, openConnection } from '../../proxy/connection.ts'
import { KnownDestinations } from '../../proxy/known-destinations.ts'
import type { ConnectionRequest } from '../../proxy/request.ts'
import { operatorIdentity } from '../../proxy/tokens/operator-identity.ts'
import { LimitCounters } from '../../proxy/tunnels/limits.ts'
import { EVERYWHERE, OPEN } from './egress/permits.ts'

const REQUEST: ConnectionRequest = {
  requestId: 'r-1',
  dialect: 'connect',
  target: '127.0.0.1:80',
  credentials: { kind: 'none' },
  client: { address: '127.0.0.1', port: 1 },
}

describe('a fault', () => {
  test.each<readonly [string, Partial<Gate>]>([
    [
      'of who counts and traces',
      {
        onOutcome: () => {
          throw new Error('counting')
        },
      },
    ],
    ['of the audit log', { audit: { ...silentLog(), write: () => Promise.reject(new Error('writing')) } }],
  ])('%s is a refusal; what was dialled is closed, and its place given back', async (_what, faulty) => {
    const limits = new LimitCounters({ tunnels: 1, perSandbox: {}, perTenant: {} }, systemClock)
    const faults: unknown[] = []
    let destroyed = 0
    const gate = {
      ...gateWith(limits),
      onFault: (_request: ConnectionRequest, fault: unknown) => void faults.push(fault),
      ...faulty,
    }
    const upstream = { destroy: () => (destroyed += 1) }
    const outcome = await openConnection(gate, REQUEST, () =>
      Promise.resolve({ ok: true, address: '127.0.0.1', upstream, connectMs: 1 }),
    )
    expect(outcome).toMatchObject({ ok: false, reason: 'audit_unavailable' })
    expect([destroyed, limits.tunnels, faults.length]).toEqual([1, 0, 1])
  })
})

function silentLog(): Gate['audit'] {
  return {
    write: () => Promise.resolve(true),
    isWritable: () => true,
    close: () => Promise.resolve(),
  }
}

function gateWith(limits: LimitCounters): Gate {
  const identity = operatorIdentity({ tenant: 'acme', nowMs: 0 })
  return {
    destinations: new KnownDestinations(),
    closedFor: () => undefined,
    identify: () => ({ ok: true, identity, tunnelExpiresAtMs: Infinity }),
    resolver: () => undefined,
    limits,
    audit: silentLog(),
    letsOutUnrecorded: () => false,
    onOutcome: () => undefined,
    onFault: () => undefined,
    isRevoked: () => false,
    layersFor: () => OPEN,
    layersKnownFor: () => OPEN,
    network: () => EVERYWHERE,
    clock: systemClock,
  }
}
