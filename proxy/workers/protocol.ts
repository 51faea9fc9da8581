/**
 * Every message between the supervising process and a worker. A worker reads what hostile clients send, so what it says is read as strictly as any other
 * input; what the supervisor says is its own configuration and state.
 */
import { z } from 'zod'
import { holderShown, type Piece, type Selection, tunnelLost, tunnelShown } from '../admin/open-tunnels.ts'
import type { Config } from '../config/schema.ts'
import type { ListeningAddress } from '../listeners.ts'
import type { TenantLayer } from '../policy/kept-tenants.ts'
import type { RevocationRule } from '../state/revocation-rules.ts'
import type { UsageChange } from '../tunnels/usage.ts'

/** To a worker. */
export type ToWorker =
  /** The first message, once. */
  | { readonly kind: 'start'; readonly start: WorkerStart }
  /** It may accept connections from now on. */
  | { readonly kind: 'serve' }
  /** What the other processes counted against limits. */
  | { readonly kind: 'usage'; readonly changes: WireUsage }
  | { readonly kind: 'ask'; readonly id: number; readonly ask: Ask }
  /** Nothing, so that the silence is none. */
  | { readonly kind: 'beat' }

/** What a worker begins with. */
export interface WorkerStart {
  readonly config: Config
  /** From 1. */
  readonly number: number
  readonly version: string
  readonly machineSets: Readonly<Record<'npm' | 'apt', readonly string[]>>
  /** Of clients; no port is 0. */
  readonly proxy: readonly ListeningAddress[]
  /** Everything that the gateway listens on, in whichever process. */
  readonly own: readonly ListeningAddress[]
}

/** What a worker is asked. */
export type Ask =
  /** To look at the state and at its tunnels again. */
  | { readonly what: 'look' }
  | { readonly what: 'listeners'; readonly own: readonly ListeningAddress[] }
  | { readonly what: 'takeOver'; readonly config: Config }
  | { readonly what: 'list'; readonly selection: Selection; readonly piece: Piece }
  | { readonly what: 'cut'; readonly selection: Selection }
  | { readonly what: 'countRevoked'; readonly rule: RevocationRule }
  | { readonly what: 'lostUnder'; readonly tenant: string; readonly layer?: TenantLayer; readonly shown: number }
  | {
      readonly what: 'holders'
      readonly selection: Pick<Selection, 'tenant' | 'sandbox'>
      readonly piece: Piece
      readonly tokens: number
    }
  | { readonly what: 'metrics' }
  | { readonly what: 'audit' }
  /** Answered when no tunnel is left, or the time for that is over. */
  | { readonly what: 'drain' }
  /** Ends the worker in order; answered by its end. */
  | { readonly what: 'close' }

/** One change each: key, whether it is of a tenant, and the numbers in the order of {@link UsageChange}. */
export type WireUsage = readonly (readonly [string, 0 | 1, number, number, number, number])[]

/** From a worker. */
export type FromWorker =
  /** Its core is open: it can be asked, and waits for `serve`. */
  | { readonly kind: 'open' }
  /** It accepts connections. */
  | { readonly kind: 'serving' }
  /** It can't begin, and ends. */
  | { readonly kind: 'failed'; readonly code: string; readonly message: string }
  | { readonly kind: 'usage'; readonly changes: WireUsage }
  | { readonly kind: 'beat'; readonly tunnels: number; readonly notReady: readonly string[] }
  | { readonly kind: 'answer'; readonly id: number; readonly value: unknown }
  | { readonly kind: 'fault'; readonly id: number }

/** Of a message of a worker: a page of tunnels is the longest. An answer that would be longer is none. */
export const LONGEST_FROM_WORKER = 32 * 1024 * 1024
/** Of a message of the supervisor: a configuration is the longest. */
export const LONGEST_TO_WORKER = 128 * 1024 * 1024
/** Changes in one message, and characters of their keys: names may be long. */
export const MOST_CHANGES = 2_000
const MOST_KEY_CHARACTERS = 512 * 1024
/** Of one key: three names of 512 characters, each of which JSON may write as six. */
const LONGEST_KEY = 16 * 1024

/** How long after a change that a limit is near to it is told, and told on: there and back is below 100 ms. */
export const TELL_MS = 20
/** The same for all that is far from its limits. */
export const TELL_LATER_MS = 1_000
/** How often each side shows the other that it is alive. */
export const BEAT_MS = 500
/** For so long a worker goes on without a word of the supervisor; then it lets out nothing new. */
export const CUT_OFF_MS = 5_000

const text = z.string().max(4_096)
const index = z.int().nonnegative()

const fromWorker = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('open') }),
  z.strictObject({ kind: z.literal('serving') }),
  z.strictObject({ kind: z.literal('failed'), code: text, message: z.string().max(64 * 1024) }),
  z.strictObject({ kind: z.literal('beat'), tunnels: index, notReady: z.array(z.string().max(64)).max(16) }),
  z.strictObject({ kind: z.literal('answer'), id: index, value: z.unknown() }),
  z.strictObject({ kind: z.literal('fault'), id: index }),
])

/** Reads a message of a worker. @throws when it is none */
export function readFromWorker(message: unknown): FromWorker {
  // Fifty times a second: not by the schema.
  if (typeof message === 'object' && message !== null && 'kind' in message && message.kind === 'usage')
    return { kind: 'usage', changes: readUsage((message as { readonly changes?: unknown }).changes) }
  return fromWorker.parse(message)
}

function readUsage(changes: unknown): WireUsage {
  if (isUsage(changes)) return changes
  throw new TypeError('no usage')
}

function isUsage(changes: unknown): changes is WireUsage {
  return Array.isArray(changes) && changes.length <= MOST_CHANGES && changes.every(isChange)
}

function isChange(change: unknown): boolean {
  if (!Array.isArray(change) || change.length !== 6) return false
  const [key, isTenant, tunnels, opened, bytes, paced] = change as unknown[]
  return (
    typeof key === 'string' &&
    key.length <= LONGEST_KEY &&
    (isTenant === 0 || isTenant === 1) &&
    Number.isSafeInteger(tunnels) &&
    [opened, bytes, paced].every((count) => Number.isSafeInteger(count) && Number(count) >= 0)
  )
}

/** For the wire, in as many messages as it takes. */
export function* packUsage(changes: Iterable<UsageChange>): Generator<WireUsage> {
  let packed: WireUsage[number][] = []
  let characters = 0
  for (const { key, isTenant, tunnels, opened, bytes, paced } of changes) {
    if (packed.length === MOST_CHANGES || characters > MOST_KEY_CHARACTERS) {
      yield packed
      packed = []
      characters = 0
    }
    packed.push([key, isTenant ? 1 : 0, tunnels, opened, bytes, paced])
    characters += key.length
  }
  if (packed.length > 0) yield packed
}

/** From the wire. */
export function unpackUsage(changes: WireUsage): readonly UsageChange[] {
  return changes.map(([key, isTenant, tunnels, opened, bytes, paced]) => ({
    key,
    isTenant: isTenant === 1,
    tunnels,
    opened,
    bytes,
    paced,
  }))
}

const count = z.int().nonnegative()
const label = z.union([z.string().max(512), z.number()])

/** Answers that are data, as they have to be. */
export const answers = {
  list: z.array(tunnelShown).max(2_000),
  cut: z.strictObject({
    count,
    first: z.strictObject({ tenant: text.optional(), sandbox: text.optional() }).optional(),
  }),
  countRevoked: count,
  lostUnder: z.strictObject({ count, tunnels: z.array(tunnelLost).max(1_000) }),
  holders: z.array(holderShown).max(2_000),
  metrics: z
    .array(
      z.object({
        name: z.string().regex(/^sallyport_[a-z0-9_]{1,100}$/),
        help: text,
        type: z.enum(['counter', 'gauge', 'histogram', 'summary']),
        aggregator: z.enum(['sum', 'first', 'min', 'max']).default('sum'),
        values: z
          .array(
            z.object({
              value: z.number(),
              labels: z.record(z.string().regex(/^[a-zA-Z_]{1,64}$/), label),
              metricName: z
                .string()
                .regex(/^sallyport_[a-z0-9_]{1,100}$/)
                .optional(),
            }),
          )
          .max(5_000),
      }),
    )
    .max(500),
  audit: z.strictObject({
    isWritable: z.boolean(),
    sinks: z
      .array(
        z.strictObject({
          name: text,
          lagRecords: z.number(),
          lagSeconds: z.number(),
          delivered: z.number(),
          failures: z.number(),
          refused: z.number(),
          missing: z.number(),
          segment: z.number(),
        }),
      )
      .max(100),
  }),
} as const

/** A question with an answer that is data. */
export type DataAsk = Extract<Ask, { readonly what: keyof typeof answers }>

/** What comes back for it. */
export type AnswerTo<A extends DataAsk> = z.output<(typeof answers)[A['what']]>
