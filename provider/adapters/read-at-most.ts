/** A file of a sandbox, up to a limit, since it is read into this process: it may be larger than it said, or grow while it is read. */
import type { Sandbox } from '../sandbox.ts'

/** Its first `limit` bytes. @throws SandboxError */
export async function readAtMost(sandbox: Sandbox, file: string, limit: number): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = []
  let size = 0
  for await (const piece of sandbox.readFileStream(file)) {
    pieces.push(piece)
    size += piece.length
    if (size >= limit) break
  }
  return Uint8Array.from(Buffer.concat(pieces).subarray(0, limit))
}

/** The whole of it, or nothing when it is larger than `limit`. @throws SandboxError */
export async function readWhole(
  sandbox: Sandbox,
  file: string,
  limit: number,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const content = await readAtMost(sandbox, file, limit + 1)
  return content.length > limit ? undefined : content
}
