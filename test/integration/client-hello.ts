/** Builds TLS ClientHello messages byte by byte, lawful and otherwise. @see RFC 8446 section 4.1.2, RFC 6066 section 3 */

export interface HelloShape {
  /** Server names, in order; none leaves the extension out. */
  readonly names: readonly string[]
  /** Bytes of a padding extension. */
  readonly padding?: number
  /** Adds an encrypted_client_hello extension. */
  readonly ech?: boolean
  /** Splits the handshake message over records of this many bytes. */
  readonly recordBytes?: number
}

export function clientHello(shape: HelloShape): Buffer {
  const extensions = Buffer.concat([
    ...(shape.names.length > 0 ? [extension(0, serverNames(shape.names))] : []),
    extension(10, Buffer.from('0002001d', 'hex')),
    extension(13, Buffer.from('00020403', 'hex')),
    extension(43, Buffer.from('0403040303', 'hex').subarray(0, 5)),
    ...(shape.ech === true ? [extension(0xfe0d, Buffer.alloc(40, 7))] : []),
    ...(shape.padding === undefined ? [] : [extension(21, Buffer.alloc(shape.padding))]),
  ])
  const body = Buffer.concat([
    Buffer.from('0303', 'hex'),
    Buffer.alloc(32, 1),
    Buffer.from([0]),
    Buffer.from('000213010100', 'hex'),
    uint16(extensions.length),
    extensions,
  ])
  const handshake = Buffer.concat([
    Buffer.from([1, body.length >> 16, (body.length >> 8) & 255, body.length & 255]),
    body,
  ])
  const size = shape.recordBytes ?? 16_384
  const records: Buffer[] = []
  for (let at = 0; at < handshake.length; at += size) {
    const fragment = handshake.subarray(at, at + size)
    records.push(Buffer.from('160301', 'hex'), uint16(fragment.length), fragment)
  }
  return Buffer.concat(records)
}

function serverNames(names: readonly string[]): Buffer {
  const list = Buffer.concat(
    names.map((name) => Buffer.concat([Buffer.from([0]), uint16(name.length), Buffer.from(name, 'latin1')])),
  )
  return Buffer.concat([uint16(list.length), list])
}

function extension(type: number, data: Buffer): Buffer {
  return Buffer.concat([uint16(type), uint16(data.length), data])
}

function uint16(value: number): Buffer {
  return Buffer.from([value >> 8, value & 255])
}
