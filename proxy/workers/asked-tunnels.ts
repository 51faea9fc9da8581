/** The open tunnels of workers, asked of them. */
import type { OpenTunnels } from '../admin/open-tunnels.ts'
import { tunnelsTogether } from '../admin/tunnels-together.ts'
import type { AnswerTo, DataAsk } from './protocol.ts'
import type { WorkerChild } from './worker-child.ts'

/**
 * Of those that are there when it is asked. A list of which a part is missing is a fault. A worker that does not say that it cut is ended: then it has. What a
 * change would cut is counted as far as it is known, since nothing must keep a revocation from happening.
 */
export function askedTunnels(children: () => readonly WorkerChild[], withinMs: number): OpenTunnels {
  const now = () => tunnelsTogether(children().map((child) => tunnelsOf(child, withinMs)))
  return {
    count: () => now().count(),
    list: (...asked) => now().list(...asked),
    cut: (...asked) => now().cut(...asked),
    countRevoked: (...asked) => now().countRevoked(...asked),
    lostUnder: (...asked) => now().lostUnder(...asked),
    holders: (...asked) => now().holders(...asked),
  }
}

/** For a number that only tells. */
const COUNT_MS = 1_000

function tunnelsOf(child: WorkerChild, withinMs: number): OpenTunnels {
  const ask = async <A extends DataAsk>(question: A, none: AnswerTo<A>): Promise<AnswerTo<A>> => {
    try {
      return await child.askData(question, withinMs)
    } catch (error) {
      // Its tunnels ended with it.
      if (child.hasEnded) return none
      throw error
    }
  }
  return {
    count: () => child.tunnels,
    list: (selection, piece) => ask({ what: 'list', selection, piece }, []),
    cut: (selection) =>
      child.askData({ what: 'cut', selection }, withinMs).catch(() => {
        child.kill('it did not confirm `cut`')
        return { count: 0 }
      }),
    countRevoked: (rule) => child.askData({ what: 'countRevoked', rule }, COUNT_MS).catch(() => 0),
    lostUnder: (tenant, layer, shown) =>
      child
        .askData({ what: 'lostUnder', tenant, ...(layer && { layer }), shown }, withinMs)
        .catch(() => ({ count: 0, tunnels: [] })),
    holders: (selection, piece, tokens) => ask({ what: 'holders', selection, piece, tokens }, []),
  }
}
