/** The shapes in which lines leave for other systems. */
import type { AuditLine } from '../schema.ts'
import { ecsEvent } from './ecs.ts'
import { ocsfEvent } from './ocsf.ts'

/** `native`: the line as it is in the file. `ocsf`: OCSF 1.8. `ecs`: Elastic Common Schema 8. */
export const EVENT_FORMATS = ['native', 'ocsf', 'ecs'] as const

/** One of {@link EVENT_FORMATS}. */
export type EventFormat = (typeof EVENT_FORMATS)[number]

/** A line as one line of JSON in printable ASCII, without a newline. `text` is the line as it is in the file. */
export function formatEvent(format: EventFormat, line: AuditLine, text: string): string {
  switch (format) {
    case 'native':
      return text
    case 'ocsf':
      return asciiJson(ocsfEvent(line))
    case 'ecs':
      return asciiJson(ecsEvent(line))
  }
}

/** What is outside printable ASCII becomes an escape, so that no receiver's terminal or framing depends on what a client sent. */
function asciiJson(value: object): string {
  return JSON.stringify(value).replace(/[\x7f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
