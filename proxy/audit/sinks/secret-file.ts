/** Reads a secret of a sink from its file: at each use, so that a changed file needs no restart. */
import { readFileSync } from 'node:fs'
import { DeliveryFault } from './sink.ts'

const MAX_SECRET_CHARACTERS = 16 * 1024

/**
 * The text without the newline at its end.
 * @throws DeliveryFault when it can't be read, is empty, or is no single line of text; never with its content
 */
export function readSecret(path: string): string {
  let text: string
  try {
    text = readFileSync(path, 'utf8').replace(/\r?\n$/, '')
  } catch {
    throw new DeliveryFault('the file of its secret can not be read')
  }
  if (!/^[!-~](?:[ -~]*[!-~])?$/.test(text) || text.length > MAX_SECRET_CHARACTERS)
    throw new DeliveryFault('the file of its secret does not hold one line of printable ASCII')
  return text
}
