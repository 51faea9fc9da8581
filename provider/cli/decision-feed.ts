/** What the gateway of a run has decided, read from its audit log as it grows. */
import { parseLine } from '../../proxy/audit/match.ts'
import { readLines } from '../../proxy/audit/read-lines.ts'
import type { AuditLine } from '../../proxy/audit/schema.ts'
import { listSegments } from '../../proxy/audit/segments.ts'

/** A line about one request to go out. */
export type DecisionLine = Extract<AuditLine, { readonly kind: 'decision' }>

/** The decisions of one log. */
export interface DecisionFeed {
  /** Those since the last call, in order. A gateway writes a decision down before it answers, so what a client knows is here too. */
  readonly read: () => Promise<readonly DecisionLine[]>
}

/** Follows the log in a folder that one gateway writes. */
export function createDecisionFeed(auditFolder: string): DecisionFeed {
  let number = 0
  let offset = 0
  let reading: Promise<unknown> = Promise.resolve()

  const readNew = async (): Promise<readonly DecisionLine[]> => {
    const found: DecisionLine[] = []
    for (const segment of listSegments(auditFolder)) {
      if (segment.number < number) continue
      if (segment.number > number) [number, offset] = [segment.number, 0]
      for await (const { lines, endOffset } of readLines(segment.path, offset)) {
        offset = endOffset
        for (const line of lines) {
          const parsed = parseLine(line.toString('latin1', 0, line.length - 1))
          if (parsed?.kind === 'decision') found.push(parsed)
        }
      }
    }
    return found
  }
  return {
    read: () => {
      const next = reading.then(readNew)
      reading = next.catch(() => undefined)
      return next
    },
  }
}
