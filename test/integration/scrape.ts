/** Reads what `/metrics` of a gateway says. */
export interface Series {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** Every series that the admin listener exposes; `admin.open` has to hold `metrics`. */
export async function scrape(adminPort: number): Promise<readonly Series[]> {
  const response = await fetch(`http://127.0.0.1:${adminPort}/metrics`)
  if (!response.ok) throw new Error(`/metrics answered ${response.status}`)
  return parseSeries(await response.text())
}

/** The samples of the text format; throws for a line that is none. */
export function parseSeries(text: string): readonly Series[] {
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line)
      if (match === null) throw new Error(`not a sample: ${line}`)
      const labels = [...(match[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)]
      return {
        name: match[1] ?? '',
        labels: Object.fromEntries(labels.map(([, label, value]) => [label ?? '', value ?? ''])),
        value: Number(match[3]),
      }
    })
}

/** The names of metrics, those of histograms without their suffix, each with its labels in order. */
export function metricNames(series: readonly Series[]): ReadonlyMap<string, readonly string[]> {
  const histograms = new Set(
    series.filter(({ name }) => name.endsWith('_bucket')).map(({ name }) => name.replace(/_bucket$/, '')),
  )
  const names = new Map<string, Set<string>>()
  for (const { name, labels } of series) {
    const base = name.replace(/_(bucket|sum|count)$/, '')
    const metric = histograms.has(base) ? base : name
    const known = names.get(metric) ?? new Set()
    for (const label of Object.keys(labels)) known.add(label)
    names.set(metric, known)
  }
  return new Map([...names].map(([name, labels]) => [name, [...labels].sort()]))
}
