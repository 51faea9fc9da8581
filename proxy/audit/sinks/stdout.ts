/** Writes lines to standard output, one JSON object a line, for whatever collects what containers print. */
import type { Writable } from 'node:stream'
import { formatEvent, type EventFormat } from '../formats/format.ts'
import { DeliveryFault, type Sink } from './sink.ts'

/** A reader that stands still makes this sink late and holds up nothing else. */
export function createStdoutSink({
  format,
  output,
}: {
  readonly format: EventFormat
  readonly output: Writable
}): Sink {
  // Without a listener a closed pipe would end the process.
  const ignore = (): void => undefined
  output.on('error', ignore)
  return {
    send: (records, signal) => {
      const text = records.map(({ line, text }) => `${formatEvent(format, line, text)}\n`).join('')
      return new Promise((resolve, reject) => {
        const onAbort = (): void => reject(new DeliveryFault('the gateway stops'))
        signal.addEventListener('abort', onAbort, { once: true })
        output.write(text, (error) => {
          signal.removeEventListener('abort', onAbort)
          if (error)
            reject(
              new DeliveryFault(
                `standard output can not be written${'code' in error ? ` (${String(error.code)})` : ''}`,
              ),
            )
          else resolve()
        })
      })
    },
    close: () => void output.off('error', ignore),
  }
}
