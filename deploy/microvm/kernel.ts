/** Takes Debian's kernel apart: the ELF image out of the self-extracting one, and the drivers that are needed in the order in which they load. */
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import zlib from 'node:zlib'

/** Offsets of the boot protocol's header. @see Documentation/arch/x86/boot.rst of Linux */
const SETUP_SECTORS = 0x1f1
const PAYLOAD_OFFSET = 0x248
const PAYLOAD_LENGTH = 0x24c
const SECTOR_BYTES = 512
/** The build appends the size of what it compressed, which is no part of the stream. */
const APPENDED_BYTES = 4

/** The kernel itself. @throws Error for a compression that nothing here takes off */
export function kernelElf(image: Buffer): Buffer {
  if (isElf(image)) return image
  const start = (image.readUInt8(SETUP_SECTORS) + 1) * SECTOR_BYTES + image.readUInt32LE(PAYLOAD_OFFSET)
  const payload = image.subarray(start, start + image.readUInt32LE(PAYLOAD_LENGTH) - APPENDED_BYTES)
  const elf = expand(payload)
  if (!isElf(elf)) throw new Error('what was compressed is no kernel')
  return elf
}

function isElf(bytes: Buffer): boolean {
  return bytes.subarray(0, 4).equals(Buffer.from('\x7fELF', 'latin1'))
}

function expand(payload: Buffer): Buffer {
  const pipe = (program: string): Buffer =>
    execFileSync(program, ['-dc'], { input: payload, maxBuffer: 512 * 1024 * 1024 })
  switch (payload.readUInt32BE(0)) {
    case 0x28b52ffd:
      return zlib.zstdDecompressSync(payload)
    case 0x02214c18:
      return pipe('lz4')
    case 0xfd377a58:
      return pipe('xz')
  }
  if (payload.readUInt16BE(0) === 0x1f8b) return zlib.gunzipSync(payload)
  throw new Error('the kernel is compressed in a way that is not known here')
}

/** A driver. */
export interface KernelModule {
  readonly name: string
  readonly bytes: Buffer
}

/** The named drivers and what they depend on, each after its own dependencies. What the kernel has built in is left out. */
export function orderModules(folder: string, wanted: readonly string[]): readonly KernelModule[] {
  const files = new Map<string, string>()
  for (const file of fs.readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    const name = /([^/]+)\.ko(?:\.xz)?$/.exec(file)?.[1]
    if (name !== undefined) files.set(name.replaceAll('-', '_'), path.join(folder, file))
  }
  const ordered = new Map<string, KernelModule>()
  const add = (name: string): void => {
    const file = files.get(name)
    if (file === undefined || ordered.has(name)) return
    const packed = fs.readFileSync(file)
    const bytes = file.endsWith('.xz') ? execFileSync('xz', ['-dc'], { input: packed, maxBuffer: 64 * 1024 * 1024 }) : packed // prettier-ignore
    const depends = /\0depends=([^\0]*)\0/.exec(bytes.toString('latin1'))?.[1] ?? ''
    for (const each of depends.split(',')) add(each.replaceAll('-', '_'))
    ordered.set(name, { name, bytes })
  }
  for (const name of wanted) add(name)
  return [...ordered.values()]
}
