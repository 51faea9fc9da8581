/** What crosses between worker and host: the events of a command, one JSON object a line, and the limits both sides keep. */

/** Counted up when an old client could misread a new worker. */
export const PROTOCOL = 1

/** Bytes of a request's JSON. */
export const MAX_JSON_BYTES = 16 * 1024 * 1024

/** Bytes of one event's line: a chunk of 64 KiB, six characters a byte at worst, and room. */
export const MAX_LINE_BYTES = 1024 * 1024

/** Milliseconds between two signs of life. */
export const PING_MS = 10_000

/** Bytes of each stream that `execute` sends unless told otherwise. */
export const DEFAULT_OUTPUT_BYTES = 10 * 1024 * 1024

/** Bytes of each stream of a background process that are kept at most. */
export const MAX_KEPT_BYTES = 16 * 1024 * 1024

/** Body of a command whose stdin follows its JSON line as raw bytes. */
export const COMMAND_TYPE = 'application/vnd.sallyport.command'

/** Which of the two. */
export type StreamName = 'stdout' | 'stderr'

/** A piece of output: text, or base64 where the bytes are not UTF-8. Characters are never split between two pieces. */
export interface OutputEvent {
  readonly type: 'stdout_delta' | 'stderr_delta'
  readonly data: string
  readonly encoding?: 'base64'
}

/** Bytes that are no longer kept. */
export interface LostEvent {
  readonly type: 'lost'
  readonly stream: StreamName
  readonly bytes: number
}

/** How the command ended; the only event that holds an exit code. */
export interface ResultEvent {
  readonly type: 'result'
  readonly exitCode: number
  readonly signal?: string
  readonly timedOut: boolean
  readonly cancelled?: true
  readonly durationMs: number
  /** Bytes of the stream that were not sent; absent when all were. */
  readonly stdoutTruncated?: number
  readonly stderrTruncated?: number
}

/** The command was not run. */
export interface ErrorEvent {
  readonly type: 'error'
  readonly code: string
  readonly error: string
}

/** Every line of a stream. */
export type WireEvent = OutputEvent | LostEvent | { readonly type: 'ping' } | ResultEvent | ErrorEvent

/** Every line of a folder's list. */
export type ListEvent =
  | { readonly type: 'file'; readonly path: string; readonly size: number }
  | { readonly type: 'end'; readonly count: number }
  | { readonly type: 'error'; readonly code: string; readonly error: string }
