/** What is written on a container and its network, so that another process finds, attaches to and removes them. */
import type { SandboxInfo } from '../sandbox.ts'

/** Names of our labels. */
export const LABEL = {
  sandbox: 'sallyport.sandbox',
  backend: 'sallyport.backend',
  /** `sandbox` or `relay`. */
  part: 'sallyport.part',
  rootDir: 'sallyport.root-dir',
  /** The sandbox's folder on the host. */
  runtimeFolder: 'sallyport.runtime-folder',
  /** How its worker is reached: `socket`, `dial-unix` or `dial-tcp`. */
  channel: 'sallyport.channel',
} as const

const CALLERS = 'sallyport.label.'

/** A container's labels. */
export type Labels = Readonly<Record<string, string>>

/** Of one part of a sandbox. */
export function labelsOf(options: {
  readonly id: string
  readonly backend: string
  readonly part: 'sandbox' | 'relay' | 'network'
  readonly rootDir: string
  readonly runtimeFolder: string
  readonly channel: string
  readonly labels: Labels
}): Record<string, string> {
  return {
    ...Object.fromEntries(Object.entries(options.labels).map(([name, value]) => [CALLERS + name, value])),
    [LABEL.sandbox]: options.id,
    [LABEL.backend]: options.backend,
    [LABEL.part]: options.part,
    [LABEL.rootDir]: options.rootDir,
    [LABEL.runtimeFolder]: options.runtimeFolder,
    [LABEL.channel]: options.channel,
  }
}

/** Undefined for what is not ours. `createdAtMs` is the engine's own, for what has no `created-at`. */
export function infoOf(labels: Labels, createdAtMs: number): SandboxInfo | undefined {
  const id = labels[LABEL.sandbox]
  if (id === undefined) return undefined
  const callers = Object.fromEntries(
    Object.entries(labels)
      .filter(([name]) => name.startsWith(CALLERS))
      .map(([name, value]) => [name.slice(CALLERS.length), value]),
  )
  const expiresAtMs = timeOf(callers['expires-at'])
  return {
    id,
    createdAtMs: timeOf(callers['created-at']) ?? createdAtMs,
    ...(expiresAtMs !== undefined && { expiresAtMs }),
    labels: callers,
  }
}

/** Milliseconds, or a date. */
function timeOf(text: string | undefined): number | undefined {
  if (text === undefined || text === '') return undefined
  const time = /^\d+$/.test(text) ? Number(text) : Date.parse(text)
  return Number.isFinite(time) ? time : undefined
}
