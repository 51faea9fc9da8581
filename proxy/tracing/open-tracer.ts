/** Opens tracing where a collector is configured; nothing of it is loaded where none is. */
import type { Clock } from '../clock.ts'
import type { Config } from '../config/schema.ts'
import type { GatewayLogger } from '../core.ts'
import type { Tracer } from './tracer.ts'

/** `undefined` without a collector. */
export async function openTracer(
  { otlp, ...settings }: Config['tracing'],
  world: { readonly clock: Clock; readonly instance: string; readonly version: string; readonly logger: GatewayLogger },
): Promise<Tracer | undefined> {
  if (otlp === undefined) return undefined
  const { createTracer } = await import('./tracer.ts')
  return createTracer({ ...settings, ...otlp, timeoutMs: otlp.timeoutSeconds * 1000, ...world })
}
