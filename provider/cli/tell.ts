/** How a run tells of decisions: a line as each is refused, and a summary, for people or as JSON lines. On standard error, which the command shares. */
import type { NetworkRules } from '../../policies/index.ts'
import type { DecisionLine } from './decision-feed.ts'
import { allowOptions, createTally, type Outcome } from './tally.ts'

/** How a command ended, for the summary. */
export interface Ending {
  readonly exitCode: number
  readonly timedOut: boolean
}

/** Tells of one run. */
export interface Teller {
  readonly tell: (lines: readonly DecisionLine[]) => void
  readonly summary: (ending: Ending) => void
}

/** Lines about one destination and reason, before only the summary counts on: a client that tries again and again must not drown the command's own words. */
const MAX_LINES = 5

/** `write` prints one line. Nothing is printed but the JSON with `json`, nothing at all with `quiet`; `expectsSome`: that nothing asked to go out is worth a line when the command fails. */
export function createTeller(
  write: (line: string) => void,
  network: NetworkRules,
  style: { readonly json: boolean; readonly quiet: boolean; readonly expectsSome?: boolean },
): Teller {
  const tally = createTally(network)
  return {
    tell: (lines) => {
      for (const line of lines) {
        const outcome = tally.add(line)
        if (outcome === undefined || outcome.kind === 'allowed' || outcome.count > MAX_LINES) continue
        if (style.json) write(JSON.stringify({ event: outcome.kind, ...plain(outcome), time: line.time }))
        else if (!style.quiet) write(`sallyport: ${describe(outcome)}${outcome.count === MAX_LINES ? AND_SO_ON : ''}`)
      }
    },
    summary: (ending) => {
      const outcomes = tally.outcomes()
      if (style.json) {
        const allow = outcomes.map((outcome) => outcome.allow).filter((entry) => entry !== undefined)
        const connections = outcomes.map((outcome) => ({ ...plain(outcome), outcome: outcome.kind }))
        const suggested = [...new Set(allow)]
        write(
          JSON.stringify({ event: 'summary', ...ending, connections, uncounted: tally.uncounted(), allow: suggested }),
        )
      } else if (!style.quiet) {
        const lines = summaryLines(outcomes, tally.uncounted())
        const isWondering = style.expectsSome === true && !WITHOUT_WONDER.includes(ending.exitCode)
        for (const line of lines.length > 0 || !isWondering ? lines : [NONE_ASKED]) write(`sallyport: ${line}`)
      }
    },
  }
}

const NONE_ASKED =
  'connections: none came to the gateway; a program that ignores the proxy variables reaches nothing, and no policy helps'
/** All went well, or it never ran: a shell's codes for what may not be executed and what is not there. */
const WITHOUT_WONDER: readonly number[] = [0, 126, 127]
const AND_SO_ON = ' (more of these are only counted)'
const VERBS = { allowed: 'let out', refused: 'refused', reported: 'would be refused', failed: 'not reached' } as const

function describe({ kind, destination, reason, allow, advice }: Outcome): string {
  const why = reason === undefined ? '' : `: ${reason}`
  const help = allow !== undefined ? ` (--allow ${allow} lets it through)` : advice !== undefined ? ` (${advice})` : ''
  return `${VERBS[kind]} ${destination}${why}${help}`
}

/** Nothing to say of a run that asked for nothing. */
function summaryLines(outcomes: readonly Outcome[], uncounted: number): readonly string[] {
  if (outcomes.length === 0) return []
  const counts = (['allowed', 'refused', 'reported', 'failed'] as const).flatMap((kind) => {
    const count = outcomes.filter((outcome) => outcome.kind === kind).reduce((sum, outcome) => sum + outcome.count, 0)
    return count === 0 ? [] : [`${count} ${VERBS[kind]}`]
  })
  const others = uncounted === 0 ? '' : `, and ${uncounted} more to too many places to name`
  const options = allowOptions(outcomes)
  return [
    `connections: ${counts.join(', ')}${others}`,
    ...(options === undefined ? [] : [`to let it through, add: ${options}`]),
  ]
}

function plain({ destination, reason, allow, advice, count }: Outcome): object {
  return { destination, reason, allow, advice, count }
}
