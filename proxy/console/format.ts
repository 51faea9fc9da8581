/** How numbers, times and faults read. */

/** Such as `1.4 MiB`. */
export function bytesText(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10))
  const value = bytes / 1024 ** power
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[power] ?? ''}`
}

const NUMBER = new Intl.NumberFormat('en')

/** With thousands apart. */
export function countText(count: number): string {
  return NUMBER.format(count)
}

/** Such as `14:03:07.123`, in the time of the browser. */
export function clockText(time: string): string {
  const at = new Date(time)
  const two = (value: number): string => String(value).padStart(2, '0')
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, '0')}`
}

/** Such as `30 Nov, 14:03`. */
export function momentText(time: string | number): string {
  return new Date(time).toLocaleString('en', {
    day: 'numeric',
    month: 'short',
    hour: '2-digit',
    minute: '2-digit',
    hour12: false,
  })
}

/** Such as `3 min` or `2 h 10 min`. */
export function spanText(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  const seconds = ms / 1_000
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`
  const minutes = Math.round(seconds / 60)
  if (minutes < 60) return `${minutes} min`
  const [hours, rest] = [Math.floor(minutes / 60), minutes % 60]
  return hours < 48 ? `${hours} h${rest === 0 ? '' : ` ${rest} min`}` : `${Math.round(hours / 24)} days`
}

/** What a fault says. */
export function textOf(fault: unknown): string {
  return fault instanceof Error ? fault.message : 'something went wrong'
}
