/** The way out of a worker's sandbox: what carries to the gateway, and what is found out about it at the start, before anything else is loaded. */
import type net from 'node:net'
import { startForward } from './forward.ts'
import { type GatewayWay, openGatewayWay } from './gateway-way.ts'
import { probe } from './probe.ts'
import type { WorkerSettings } from './settings.ts'

/** What is open. */
export interface WayOut {
  /** Loopback ports that listen. */
  readonly forwards: readonly net.Server[]
  readonly gateway: GatewayWay | undefined
  /** Resolves to the report of the probe that the settings ask for, if they do. */
  readonly probed: Promise<object> | undefined
}

/** Resolves when it listens and, if there is a probe, when the gateway has been asked: its answer is still to come, and the time until then is the caller's. */
export async function openWayOut(settings: WorkerSettings): Promise<WayOut> {
  let markAsked: () => void = () => undefined
  const asked = new Promise<void>((resolve) => (markAsked = resolve))
  const forwards = await Promise.all(
    (settings.forward ?? []).map((forward) => startForward(forward, () => markAsked())),
  )
  const gateway = settings.gateway && (await openGatewayWay(settings.gateway))
  if (settings.probe === undefined) return { forwards, gateway, probed: undefined }
  const probed = probe(settings.probe)
  // Whoever waits for the report hears of it.
  probed.catch(() => undefined)
  if (forwards.length > 0) await Promise.race([asked, probed])
  return { forwards, gateway, probed }
}
