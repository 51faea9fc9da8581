/** How much of a limit is used. */
import { countText } from '../format.ts'

interface MeterProps {
  readonly label: string
  readonly used: number
  /** Absent: there is none. */
  readonly limit: number | undefined
  readonly text?: (value: number) => string
}

/** From four fifths on it warns. */
export function Meter({ label, used, limit, text = countText }: MeterProps) {
  const share = limit === undefined ? 0 : used / limit
  return (
    <div class={share >= 1 ? 'meter full' : share >= 0.8 ? 'meter near' : 'meter'}>
      <span class="name">{label}</span>
      {limit !== undefined && <progress max={limit} value={Math.min(used, limit)} aria-label={label} />}
      <span class="value">
        {text(used)}
        {limit === undefined ? ', no limit' : ` of ${text(limit)}`}
      </span>
    </div>
  )
}
