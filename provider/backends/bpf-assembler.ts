/** Classic BPF by hand: instructions with labels in, the kernel's bytes out. Knows nothing of system calls. */

/** Opcodes of `linux/bpf_common.h`. */
const LOAD_WORD_ABSOLUTE = 0x20
const AND_CONSTANT = 0x54
const JUMP = { equal: 0x15, atLeast: 0x35, bitsSet: 0x45 } as const
const RETURN_CONSTANT = 0x06

/** A condition on the accumulator. */
export type Condition = keyof typeof JUMP

/** One line of a program. A jump whose condition does not hold goes on with the next line. */
export type Line =
  | { readonly label: string }
  | { readonly load: number }
  | { readonly and: number }
  | { readonly when: Condition; readonly value: number; readonly goto: string }
  | { readonly answer: number }

const INSTRUCTION_BYTES = 8

/**
 * The program as an array of `struct sock_filter`, little endian.
 *
 * @throws Error for a label that is missing or too far away (255 instructions): a fault of the program's author
 */
export function assemble(lines: readonly Line[]): Buffer {
  const addresses = new Map<string, number>()
  let count = 0
  for (const line of lines) {
    if ('label' in line) addresses.set(line.label, count)
    else count += 1
  }
  const bytes = Buffer.alloc(count * INSTRUCTION_BYTES)
  let at = 0
  for (const line of lines) {
    if ('label' in line) continue
    const { code, jumpTrue, constant } = encode(line, (label) => distance(addresses.get(label), at, label))
    const offset = at * INSTRUCTION_BYTES
    bytes.writeUInt16LE(code, offset)
    bytes.writeUInt8(jumpTrue, offset + 2)
    bytes.writeUInt32LE(constant, offset + 4)
    at += 1
  }
  return bytes
}

interface Encoded {
  readonly code: number
  readonly jumpTrue: number
  readonly constant: number
}

function encode(line: Exclude<Line, { label: string }>, distanceTo: (label: string) => number): Encoded {
  if ('load' in line) return { code: LOAD_WORD_ABSOLUTE, jumpTrue: 0, constant: line.load }
  if ('and' in line) return { code: AND_CONSTANT, jumpTrue: 0, constant: line.and >>> 0 }
  if ('answer' in line) return { code: RETURN_CONSTANT, jumpTrue: 0, constant: line.answer >>> 0 }
  return { code: JUMP[line.when], jumpTrue: distanceTo(line.goto), constant: line.value >>> 0 }
}

function distance(target: number | undefined, from: number, label: string): number {
  const jump = target === undefined ? -1 : target - from - 1
  if (jump < 0 || jump > 255) throw new Error(`no way to the label ${label} from instruction ${from}`)
  return jump
}
