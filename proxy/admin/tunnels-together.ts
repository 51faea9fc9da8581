/** The open tunnels of several processes as one list. */
import { type Holder, type OpenTunnels, pieceOf } from './open-tunnels.ts'

/** What all of them have; each is asked at the same time. */
export function tunnelsTogether(all: readonly OpenTunnels[]): OpenTunnels {
  const ask = <T>(question: (one: OpenTunnels) => Promise<T>): Promise<readonly T[]> => Promise.all(all.map(question))
  return {
    count: () => sum(all.map((one) => one.count())),
    list: async (selection, piece) =>
      pieceOf((await ask((one) => one.list(selection, piece))).flat(), piece, ({ requestId }) => requestId),
    cut: async (selection) => {
      const cut = await ask((one) => one.cut(selection))
      const first = cut.find((one) => one.first)?.first
      return { count: sum(cut.map(({ count }) => count)), ...(first && { first }) }
    },
    countRevoked: async (rule) => sum(await ask((one) => one.countRevoked(rule))),
    lostUnder: async (tenant, layer, shown) => {
      const lost = await ask((one) => one.lostUnder(tenant, layer, shown))
      const tunnels = lost.flatMap((one) => one.tunnels).slice(0, shown)
      return { count: sum(lost.map(({ count }) => count)), tunnels }
    },
    holders: async (selection, piece, tokens) => {
      const found = (await ask((one) => one.holders(selection, piece, tokens))).flat()
      const holders = [...Map.groupBy(found, ({ key }) => key).values()].flatMap((same) => together(same, tokens))
      return pieceOf(holders, piece, ({ key }) => key)
    },
  }
}

function together(same: readonly Holder[], tokens: number): Holder[] {
  const [first] = same
  if (first === undefined) return []
  return [{ ...first, tokenIds: [...new Set(same.flatMap(({ tokenIds }) => tokenIds))].slice(0, tokens) }]
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, one) => total + one, 0)
}
