/** Refusals over time, one column for each part of the period, stacked by host. The table beside it says the same in numbers. */
import { scaleLinear, scaleTime } from 'd3-scale'
import { stack } from 'd3-shape'
import { countText, momentText } from '../format.ts'
import { visible } from '../visible.ts'

interface ChartProps {
  readonly label: string
  /** RFC 3339. */
  readonly until: string
  readonly series: readonly { readonly start: string; readonly refused: number; readonly hosts: readonly number[] }[]
  /** Names of those that have a colour of their own; what is beyond is `others`. */
  readonly names: readonly string[]
  /** The one that is pointed out. */
  readonly chosen?: string | undefined
}

const WIDTH = 960
const HEIGHT = 220
const EDGE = { top: 8, right: 8, bottom: 22, left: 44 }
const DAY_MS = 86_400_000
const clock = new Intl.DateTimeFormat('en', { hour: '2-digit', minute: '2-digit', hour12: false })
const day = new Intl.DateTimeFormat('en', { day: 'numeric', month: 'short' })
/** Colours in the style sheet. */
export const COLOURS = 7

/** See above. */
export function Chart({ label, until, series, names, chosen }: ChartProps) {
  const starts = series.map(({ start }) => new Date(start))
  const from = starts[0] ?? new Date(until)
  const x = scaleTime([from, new Date(until)], [EDGE.left, WIDTH - EDGE.right])
  const y = scaleLinear(
    [0, Math.max(1, ...series.map(({ refused }) => refused))],
    [HEIGHT - EDGE.bottom, EDGE.top],
  ).nice()
  const width = series.length === 0 ? 0 : (WIDTH - EDGE.left - EDGE.right) / series.length
  const keys = [...names.keys(), COLOURS]
  const columns = series.map(({ refused, hosts }) => {
    const own = hosts.slice(0, names.length)
    return [
      ...own,
      ...Array<number>(COLOURS - own.length).fill(0),
      refused - own.reduce((sum, count) => sum + count, 0),
    ]
  })
  const layers = stack<readonly number[], number>()
    .keys(keys)
    .value((column, key) => column[key] ?? 0)(columns)
  const isDays = Date.parse(until) - from.getTime() > DAY_MS
  const largest = Math.max(0, ...series.map(({ refused }) => refused))
  return (
    <svg
      class="chart"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      role="img"
      aria-label={`${label}. At most ${countText(largest)} in one column; the table below has the hosts.`}
    >
      {y.ticks(4).map((tick) => (
        <g transform={`translate(0 ${y(tick)})`}>
          <line class="rule" x1={EDGE.left} x2={WIDTH - EDGE.right} />
          <text class="tick" x={EDGE.left - 6} dy="0.32em" text-anchor="end">
            {countText(tick)}
          </text>
        </g>
      ))}
      {x.ticks(6).map((tick) => (
        <text class="tick" x={x(tick)} y={HEIGHT - 6} text-anchor="middle">
          {(isDays ? day : clock).format(tick)}
        </text>
      ))}
      {layers.map((layer) => (
        <g class={`layer colour-${layer.key} ${chosen !== undefined && names[layer.key] !== chosen ? 'behind' : ''}`}>
          {layer.map(([low, high], column) =>
            high > low ? (
              <rect
                x={x(starts[column] ?? from) + Math.min(1, width / 8)}
                width={Math.max(1, width - Math.min(2, width / 4))}
                y={y(high)}
                height={y(low) - y(high)}
              >
                <title>{`${visible(names[layer.key] ?? 'others')}: ${countText(high - low)}, from ${momentText((starts[column] ?? from).getTime())}`}</title>
              </rect>
            ) : null,
          )}
        </g>
      ))}
    </svg>
  )
}
