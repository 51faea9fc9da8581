/** Runs a classic BPF program on one system call, as the kernel does: so that filters for other processors can be tested too. */

export interface Call {
  readonly number: number
  /** `AUDIT_ARCH_…` */
  readonly architecture: number
  readonly args?: readonly (number | bigint)[]
}

/** The answer: `SECCOMP_RET_…` with its data. */
export function runBpf(program: Buffer, call: Call): number {
  const data = Buffer.alloc(64)
  data.writeUInt32LE(call.number >>> 0, 0)
  data.writeUInt32LE(call.architecture, 4)
  call.args?.forEach((value, index) => data.writeBigUInt64LE(BigInt.asUintN(64, BigInt(value)), 16 + 8 * index))
  let accumulator = 0
  for (let at = 0; at < program.length / 8; at += 1) {
    const code = program.readUInt16LE(at * 8)
    const [jumpTrue, jumpFalse] = [program.readUInt8(at * 8 + 2), program.readUInt8(at * 8 + 3)]
    const constant = program.readUInt32LE(at * 8 + 4)
    const jump = (holds: boolean): number => at + (holds ? jumpTrue : jumpFalse)
    if (code === 0x20) accumulator = data.readUInt32LE(constant)
    else if (code === 0x54) accumulator = (accumulator & constant) >>> 0
    else if (code === 0x15) at = jump(accumulator === constant)
    else if (code === 0x35) at = jump(accumulator >= constant)
    else if (code === 0x45) at = jump((accumulator & constant) !== 0)
    else if (code === 0x06) return constant
    else throw new Error(`no such instruction: ${code.toString(16)}`)
  }
  throw new Error('the program has no end')
}
