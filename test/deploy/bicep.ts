/** Reads the resources of a Bicep template as far as ours use the language: literals, objects, lists; an expression is its value in `values`, or a text. */

export interface BicepResource {
  readonly type: string
  readonly apiVersion: string
  readonly body: Readonly<Record<string, unknown>>
}

/** @throws Error that names the line which is not understood */
export function readBicep(text: string, values: Readonly<Record<string, unknown>>): readonly BicepResource[] {
  const lines = text.split('\n').map((line) => line.replace(/^\s*\/\/.*$/, '').trim())
  let at = 0
  const fail = (): never => {
    throw new Error(`line ${at + 1} is not understood: ${lines[at] ?? ''}`)
  }
  const value = (source: string): unknown => {
    // Of two branches the one that says more.
    const chosen = source.replace(/^.*\? \[\] : /, '')
    if (chosen === '{') return object()
    if (chosen === '[') return list()
    if (chosen === '[]') return []
    if (/^-?\d+(\.\d+)?$/.test(chosen)) return Number(chosen)
    if (chosen === 'true' || chosen === 'false') return chosen === 'true'
    if (/^'[^']*'$/.test(chosen)) return chosen.slice(1, -1)
    if (chosen in values) return values[chosen]
    return /^[a-zA-Z][\w.]*(\(.*\))?[\w.]*$/.test(chosen) ? chosen : fail()
  }
  const object = (): Record<string, unknown> => {
    const found: Record<string, unknown> = {}
    for (at++; lines[at] !== '}'; at++) {
      const line = lines[at] ?? fail()
      if (line === '') continue
      const [, name = '', source = ''] = /^'?([\w.]+)'?: (.+)$/.exec(line) ?? fail()
      if (name in found) throw new Error(`line ${at + 1} says \`${name}\` twice`)
      found[name] = value(source)
    }
    return found
  }
  const list = (): unknown[] => {
    const found: unknown[] = []
    for (at++; lines[at] !== ']'; at++) if (lines[at] !== '') found.push(value(lines[at] ?? fail()))
    return found
  }
  const resources: BicepResource[] = []
  for (; at < lines.length; at++) {
    const head = /^resource \w+ '([^@']+)@([^']+)' = \{$/.exec(lines[at] ?? '')
    if (head !== null) resources.push({ type: head[1] ?? '', apiVersion: head[2] ?? '', body: object() })
  }
  return resources
}
