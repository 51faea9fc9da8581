/** Reads a bearer token that this gateway presents elsewhere. Whoever issues it renews it in place, so it is read at every use and never kept. */
import { readFile } from 'node:fs/promises'

/**
 * The token in `path`, one newline cut.
 * @throws Error whose message names the file and holds nothing of it
 * @see RFC 6750 section 2.1
 */
export async function readBearerFile(path: string): Promise<string> {
  const text = await readFile(path, 'latin1').catch(() => {
    throw new Error(`\`${path}\` can not be read`)
  })
  const token = text.replace(/\r?\n$/, '')
  // Anything else would end or split the header, and the fault of the client that sends it would repeat it.
  if (!/^[A-Za-z0-9._~+/-]{1,16384}=*$/.test(token)) throw new Error(`\`${path}\` holds no bearer token`)
  return token
}
