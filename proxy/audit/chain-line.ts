/** Reads of a line what the chain needs. */

/** A line, as far as the chain goes. */
export interface ChainLine {
  readonly seq: number
  readonly time: string
  readonly instance: string
  readonly kind: string
  readonly prev: string
  readonly action?: unknown
  readonly lost?: unknown
  readonly segment?: unknown
  readonly previous?: unknown
  readonly torn_bytes?: unknown
  readonly cause?: unknown
  readonly signer?: unknown
}

/** Undefined when it is no line: one JSON object in printable ASCII, ended by a newline, with the fields of the chain. */
export function parseChainLine(text: string): ChainLine | undefined {
  if (!/^\{[ -~]*\}\n$/.test(text)) return undefined
  try {
    const value = JSON.parse(text) as Partial<Record<keyof ChainLine, unknown>>
    const isLine =
      Number.isSafeInteger(value.seq) &&
      typeof value.time === 'string' &&
      typeof value.instance === 'string' &&
      typeof value.kind === 'string' &&
      typeof value.prev === 'string'
    return isLine ? (value as ChainLine) : undefined
  } catch {
    return undefined
  }
}
