/** Leaves fields without a value, and objects without a field, out of an event. */

/** A copy; arrays are kept as they are, empty ones left out. */
export function withoutEmpty(value: object): object {
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, member]: [string, unknown]) => {
      const kept = isPlain(member) ? withoutEmpty(member) : member
      return isEmpty(kept) ? [] : [[name, kept]]
    }),
  )
}

function isPlain(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isEmpty(value: unknown): boolean {
  if (value === undefined) return true
  if (Array.isArray(value)) return value.length === 0
  return isPlain(value) && Object.keys(value).length === 0
}
