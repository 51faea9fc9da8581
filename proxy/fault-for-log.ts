/** What is said of an error in the gateway's own log. */
import { SallyportError } from '../policies/error.ts'
import { redactCredentials } from './audit/escape.ts'

/** Of the message of an error, in the log and in an audit line. */
const MAX_FAULT_CHARACTERS = 400

/** What is wrong, in the words of an error of ours; of any other the name and code alone, since its message may hold what must not be logged. */
export function faultForLog(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  if (error instanceof SallyportError) {
    const message = redactCredentials(error.message.slice(0, MAX_FAULT_CHARACTERS).replaceAll('\n', '; '))
    return `${error.code}: ${message}`
  }
  return 'code' in error ? `${error.name} ${String(error.code)}` : error.name
}
