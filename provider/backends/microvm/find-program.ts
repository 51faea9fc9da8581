/** Where a program is, without starting it. */
import { access, constants } from 'node:fs/promises'
import path from 'node:path'
import { MicrovmError } from './microvm-error.ts'

/**
 * The program at a path, or the first of that name in `PATH`. A relative folder in it would let the present folder decide what runs as root.
 *
 * @throws MicrovmError `binary_missing`, with `advice`
 */
export async function findProgram(
  named: string,
  advice: string,
  fault: 'binary_missing' | 'jailer_missing' = 'binary_missing',
): Promise<string> {
  // prettier-ignore
  const candidates = path.isAbsolute(named)
    ? [named]
    : (process.env['PATH'] ?? '').split(':').filter((folder) => path.isAbsolute(folder)).map((folder) => path.join(folder, named)) // prettier-ignore
  for (const file of candidates) {
    const isProgram = await access(file, constants.X_OK).then(
      () => true,
      () => false,
    )
    if (isProgram) return file
  }
  throw new MicrovmError(fault, `there is no program \`${named}\`: ${advice}`)
}
