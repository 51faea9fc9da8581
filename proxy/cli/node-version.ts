/** Whether this Node is new enough. Uses nothing that an old one lacks. */

/** What `engines` in package.json says. */
const LEAST = [22, 12] as const

/** One line for the user when `version` (such as `v20.20.2`) is too old; `undefined` when it will do. */
export function nodeVersionFault(version: string): string | undefined {
  const [major = 0, minor = 0] = version.replace(/^v/, '').split('.').map(Number)
  const isEnough = major > LEAST[0] || (major === LEAST[0] && minor >= LEAST[1])
  return isEnough ? undefined : `sallyport needs Node ${LEAST.join('.')} or newer; this is ${version}`
}
