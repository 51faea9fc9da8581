/** What a worker answers the supervising process, from its own core. */
import { setTimeout as wait } from 'node:timers/promises'
import { tunnelsHere } from '../admin/open-tunnels.ts'
import type { Core } from '../core.ts'
import type { RunningGateway } from '../gateway.ts'
import type { Ask } from './protocol.ts'

/** A policy that has yet to be asked for must not keep an answer: nothing passes any more on what is known to be lost, before the wait. */
const RECHECK_MS = 1_000
const TAKE_OVER_MS = 5_000

/** @throws whatever goes wrong: then nothing is confirmed */
export async function answer(
  ask: Exclude<Ask, { readonly what: 'close' | 'listeners' }>,
  core: Core,
  gateway: RunningGateway,
): Promise<unknown> {
  const tunnels = tunnelsHere(core)
  switch (ask.what) {
    case 'look':
      if (!core.state.look()) throw new Error('the state can not be read')
      return withinMs(RECHECK_MS, (await core.recheck()).over)
    case 'takeOver':
      return withinMs(TAKE_OVER_MS, core.takeOver(ask.config))
    case 'list':
      return tunnels.list(ask.selection, ask.piece)
    case 'cut':
      return tunnels.cut(ask.selection)
    case 'countRevoked':
      return tunnels.countRevoked(ask.rule)
    case 'lostUnder':
      return tunnels.lostUnder(ask.tenant, ask.layer, ask.shown)
    case 'holders':
      return tunnels.holders(ask.selection, ask.piece, ask.tokens)
    case 'metrics':
      return core.metrics.read()
    case 'audit':
      return { isWritable: core.audit.isWritable(), sinks: await core.auditService.sinks() }
    case 'drain':
      return gateway.drain()
  }
}

async function withinMs(ms: number, work: Promise<void>): Promise<void> {
  const given = new AbortController()
  await Promise.race([work, wait(ms, undefined, { signal: given.signal }).catch(() => undefined)])
  given.abort()
}
