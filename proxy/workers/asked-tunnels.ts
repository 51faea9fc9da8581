/** The open tunnels of workers, asked of them. */
import type { OpenTunnels } from '../admin/open-tunnels.ts'
import { tunnelsTogether } from '../admin/tunnels-together.ts'
import type { AnswerTo, DataAsk } from './protocol.ts'
import type { WorkerChild } from './worker-child.ts'

/** Of those that are there when it is asked; who does not answer in time is a fault, since a list must not be short in silence. */
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
    cut: (selection) => ask({ what: 'cut', selection }, { count: 0 }),
    countRevoked: (rule) => ask({ what: 'countRevoked', rule }, 0),
    lostUnder: (tenant, layer, shown) =>
      ask({ what: 'lostUnder', tenant, ...(layer && { layer }), shown }, { count: 0, tunnels: [] }),
    holders: (selection, piece, tokens) => ask({ what: 'holders', selection, piece, tokens }, []),
  }
}
