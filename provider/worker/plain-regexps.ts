/**
 * Node looks at an address with a regular expression whose optimised compilation takes a tenth of Node's own start, and tells the address apart no better.
 * What loads modules of Node while it is off loads them slowly, so not around more than what looks at addresses.
 */
import v8 from 'node:v8'

/** Compiles without optimisation until what it returns is called. */
export function plainRegexps(): () => void {
  v8.setFlagsFromString('--no-regexp-optimization')
  return () => v8.setFlagsFromString('--regexp-optimization')
}
