/** Reads what a request carries, within bounds. */
import type http from 'node:http'
import { Fault } from './fault.ts'
import { COMMAND_TYPE, MAX_JSON_BYTES } from './wire.ts'

const LINGER_MS = 5_000

/** The whole body as JSON; an empty one is `{}`. @throws Fault `too_large` or `bad_request` */
export async function readJson(request: http.IncomingMessage): Promise<unknown> {
  const pieces: Buffer[] = []
  let bytes = 0
  for await (const piece of request as AsyncIterable<Buffer>) {
    bytes += piece.length
    if (bytes > MAX_JSON_BYTES) throw tooLarge()
    pieces.push(piece)
  }
  return bytes === 0 ? {} : parseJson(Buffer.concat(pieces))
}

/** The JSON of a command. With {@link COMMAND_TYPE} it ends at the first line feed, and the request is left standing at stdin's first byte. */
export async function readCommand(request: http.IncomingMessage): Promise<unknown> {
  return request.headers['content-type'] === COMMAND_TYPE ? parseJson(await readLine(request)) : readJson(request)
}

/**
 * Throws away what a request still carries, and resolves at its end, or after a while.
 * A connection that closes before its sender is done resets, and the sender may then never see the reply.
 */
export function discardRest(request: http.IncomingMessage): Promise<void> {
  if (request.complete || request.destroyed) return Promise.resolve()
  request.resume()
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, LINGER_MS)
    const done = (): void => {
      clearTimeout(timer)
      resolve()
    }
    request.on('end', done).on('close', done)
  })
}

function readLine(request: http.IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = []
    let bytes = 0
    const stop = (): void => {
      request.off('readable', read).off('end', end).off('close', end).off('error', end)
    }
    const end = (): void => {
      stop()
      resolve(Buffer.concat(pieces))
    }
    const read = (): void => {
      for (let piece = request.read() as Buffer | null; piece !== null; piece = request.read() as Buffer | null) {
        const lineEnd = piece.indexOf(10)
        pieces.push(lineEnd < 0 ? piece : piece.subarray(0, lineEnd))
        bytes += piece.length
        if (lineEnd >= 0) {
          stop()
          if (lineEnd + 1 < piece.length) request.unshift(piece.subarray(lineEnd + 1))
          resolve(Buffer.concat(pieces))
          return
        }
        if (bytes > MAX_JSON_BYTES) {
          stop()
          reject(tooLarge())
          return
        }
      }
    }
    request.on('readable', read).on('end', end).on('close', end).on('error', end)
  })
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8')) as unknown
  } catch {
    throw new Fault('bad_request', 'the body is not JSON')
  }
}

function tooLarge(): Fault {
  return new Fault('too_large', `the request is larger than ${MAX_JSON_BYTES} bytes`)
}
