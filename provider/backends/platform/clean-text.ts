/** What a platform or a package said, made fit to print: one bounded line without control characters, and without anything that was sent in confidence. */

const MAX_TEXT_LENGTH = 300
/** Below this a secret is no secret, and taking it out would tear words apart. */
const MIN_SECRET_LENGTH = 8
/** A signed token, whoever's. @see RFC 7515 section 3.1 */
const TOKEN = /\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?/g

/** `secrets` are taken out in each spelling that a server may echo them in. */
export function cleanText(text: string, secrets: readonly string[] = []): string {
  let cleaned = text
  for (const secret of secrets) {
    if (secret.length < MIN_SECRET_LENGTH) continue
    for (const spelling of spellings(secret)) cleaned = cleaned.replaceAll(spelling, '[…]')
  }
  return cleaned
    .replaceAll(TOKEN, '[…]')
    .replaceAll(/[^\x20-\x7e…]+|`+/g, ' ')
    .trim()
    .slice(0, MAX_TEXT_LENGTH)
}

function spellings(secret: string): readonly string[] {
  const bytes = Buffer.from(secret)
  return [
    secret,
    encodeURIComponent(secret),
    JSON.stringify(secret).slice(1, -1),
    // Without the padding, so that both forms are found.
    bytes.toString('base64').replace(/=+$/, ''),
    bytes.toString('base64url'),
    bytes.toString('hex'),
  ]
}
