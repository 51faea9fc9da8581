/** Streams at the pace of the limits: what came too fast is passed on, and the next is read later. */
import { type Readable, Transform } from 'node:stream'

/**
 * `source`, or what it gives with pauses where `pace` asks for them (milliseconds, for so many bytes). Faults of the source are its owner's affair;
 * once it is destroyed, nothing is kept of what waited.
 */
export function paced(source: Readable, pace: ((bytes: number) => number) | undefined): Readable {
  if (pace === undefined) return source
  let timer: NodeJS.Timeout | undefined
  return source.pipe(
    new Transform({
      transform(chunk: Buffer, _encoding, done) {
        const waitMs = pace(chunk.length)
        if (waitMs === 0) done(null, chunk)
        else timer = setTimeout(done, waitMs, null, chunk)
      },
      destroy(error, done) {
        clearTimeout(timer)
        done(error)
      },
    }),
  )
}
