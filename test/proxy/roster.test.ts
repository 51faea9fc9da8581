import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, test } from 'vitest'
import { type Member, Roster } from '../../proxy/roster.ts'

interface Named extends Member {
  readonly name: string
}

function named(name: string): Named {
  return { name, rosterPlace: -1 }
}

const NAMES = ['a', 'b', 'c', 'd', 'e']

function filled(...names: readonly string[]) {
  const roster = new Roster<Named>()
  const members = names.map(named)
  for (const member of members) roster.add(member)
  return { roster, members, namesLeft: () => roster.list().map(({ name }) => name).sort().join('') } // prettier-ignore
}

describe('a roster', () => {
  test('holds who came and did not leave, whatever the order', () => {
    const { roster, members, namesLeft } = filled('a', 'b', 'c', 'd', 'e', 'f')
    for (const place of [5, 0, 2]) expect(roster.remove(members[place] as Named)).toBe(true)
    expect([namesLeft(), roster.size]).toEqual(['bde', 3])
    roster.add(members[0] as Named)
    expect(namesLeft()).toBe('abde')
  })

  test('lets nobody leave twice, nor whoever is in another', () => {
    const { roster, members, namesLeft } = filled('a', 'b', 'c')
    const other = filled('x', 'y', 'z')
    const [first] = members as [Named]
    expect([roster.remove(first), roster.remove(first)]).toEqual([true, false])
    expect(roster.remove(other.members[0] as Named)).toBe(false)
    expect([namesLeft(), other.namesLeft()]).toEqual(['bc', 'xyz'])
  })

  test('is empty once it is cleared, and whoever was in it can join again', () => {
    const { roster, members, namesLeft } = filled('a', 'b', 'c')
    roster.clear()
    expect(members.map((member) => roster.remove(member))).toEqual([false, false, false])
    roster.add(members[1] as Named)
    expect(namesLeft()).toBe('b')
  })

  test.each(['a b c d e', 'e d c b a', 'c a b e d'])(
    'visits everybody while they leave one by one, and others too: %s',
    (order) => {
      const { roster, members } = filled(...NAMES)
      const leaving = order.split(' ').map((name) => members.find((member) => member.name === name) as Named)
      const gone = new Set<string>()
      const visited = new Set<string>()
      roster.forEach((member) => {
        visited.add(member.name)
        const next = leaving.shift()
        if (next && roster.remove(next)) gone.add(next.name)
      })
      expect(NAMES.filter((name) => !visited.has(name) && !gone.has(name))).toEqual([])
    },
  )

  test('does not visit who comes meanwhile', () => {
    const { roster } = filled('a', 'b')
    let visits = 0
    roster.forEach(() => {
      visits++
      roster.add(named('new'))
    })
    expect([visits, roster.size]).toEqual([2, 4])
  })
})

/** What a crowd of which 64 are there at a time leaves behind, in MiB, when only the young are collected; each has 4 KiB. */
function leftBehind(comeAndGo: (member: Member & { readonly burden: unknown }) => void): number {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as (options?: { readonly type: 'minor' }) => void
  const pass = (): void => comeAndGo({ rosterPlace: -1, burden: new Array<number>(512).fill(1) })
  for (let count = 0; count < 64; count++) pass()
  // All that is there now is old from here on.
  collect()
  const before = process.memoryUsage().heapUsed
  for (let count = 0; count < 16_384; count++) {
    pass()
    if (count % 1024 === 0) collect({ type: 'minor' })
  }
  collect({ type: 'minor' })
  return (process.memoryUsage().heapUsed - before) / 2 ** 20
}

test('who has left a roster is forgotten at once, unlike with a Set', () => {
  const roster = new Roster<Member>()
  const queue: Member[] = []
  const left = leftBehind((member) => {
    roster.add(member)
    queue.push(member)
    const first = queue.length > 64 ? queue.shift() : undefined
    if (first) roster.remove(first)
  })
  queue.length = 0
  const set = new Set<Member>()
  const leftOfSet = leftBehind((member) => {
    set.add(member)
    queue.push(member)
    const first = queue.length > 64 ? queue.shift() : undefined
    if (first) set.delete(first)
  })
  expect(left).toBeLessThan(leftOfSet / 4)
})
