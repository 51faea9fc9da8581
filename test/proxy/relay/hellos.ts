/** ClientHellos made by hand, lawful ones and others, and what a server answers. */
import { hash } from 'node:crypto'

export interface HelloParts {
  /** Server names of one server_name extension; `undefined`: no such extension. */
  readonly names?: readonly string[] | undefined
  /** Type of each name; 0 is host_name. */
  readonly nameTypes?: readonly number[]
  /** Further extensions, before the server name. */
  readonly extensions?: readonly (readonly [type: number, body: Buffer])[]
  /** Further extensions, behind it. */
  readonly later?: readonly (readonly [type: number, body: Buffer])[]
  readonly session?: Buffer
  readonly suites?: readonly number[]
  /** No extensions block at all, as SSL 3 clients send. */
  readonly bare?: boolean
}

export const u8 = (value: number): Buffer => Buffer.from([value])
export const u16 = (value: number): Buffer => Buffer.from([value >> 8, value & 0xff])
export const vector8 = (body: Buffer): Buffer => Buffer.concat([u8(body.length), body])
export const vector16 = (body: Buffer): Buffer => Buffer.concat([u16(body.length), body])

export function serverNameExtension(names: readonly string[], types: readonly number[] = []): Buffer {
  return vector16(
    Buffer.concat(
      names.map((name, index) => Buffer.concat([u8(types[index] ?? 0), vector16(Buffer.from(name, 'latin1'))])),
    ),
  )
}

/** The handshake message, header included. */
export function helloMessage(parts: HelloParts = {}): Buffer {
  const named = parts.names ? [[0, serverNameExtension(parts.names, parts.nameTypes)] as const] : []
  const extensions = [...(parts.extensions ?? []), ...named, ...(parts.later ?? [])].map(([type, body]) =>
    Buffer.concat([u16(type), vector16(body)]),
  )
  const body = Buffer.concat([
    u16(0x0303),
    Buffer.alloc(32, 0x5a),
    vector8(parts.session ?? Buffer.alloc(32, 1)),
    vector16(Buffer.concat((parts.suites ?? [0x1301, 0xc02f]).map(u16))),
    vector8(u8(0)),
    parts.bare ? Buffer.alloc(0) : vector16(Buffer.concat(extensions)),
  ])
  return handshake(1, body)
}

export function handshake(type: number, body: Buffer): Buffer {
  return Buffer.concat([u8(type), u8(body.length >> 16), u16(body.length & 0xffff), body])
}

/** One record, or as many as it takes at so many bytes each. */
export function records(message: Buffer, bytesEach = 16_384, type = 22): Buffer {
  const pieces: Buffer[] = []
  for (let at = 0; at < message.length; at += bytesEach) {
    pieces.push(Buffer.concat([u8(type), u16(0x0301), vector16(message.subarray(at, at + bytesEach))]))
  }
  return Buffer.concat(pieces)
}

export const hello = (name?: string): Buffer =>
  records(helloMessage({ names: name === undefined ? undefined : [name] }))

/** A ServerHello, or with `retry` a HelloRetryRequest. */
export function serverHelloMessage(retry = false): Buffer {
  const random = retry ? hash('sha256', 'HelloRetryRequest', 'buffer') : Buffer.alloc(32, 0xa5)
  const extensions = Buffer.concat([u16(43), vector16(u16(0x0304)), u16(51), vector16(u16(0x0018))])
  return handshake(
    2,
    Buffer.concat([u16(0x0303), random, vector8(Buffer.alloc(32, 1)), u16(0x1301), u8(0), vector16(extensions)]),
  )
}

/** The change of cipher that middleboxes want to see. @see RFC 8446 appendix D.4 */
export const CHANGE_CIPHER: Buffer = Buffer.from([20, 3, 3, 0, 1, 1])
