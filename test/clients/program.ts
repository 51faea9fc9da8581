/** Starts a program, waits for its end and keeps what it wrote. Asynchronous: the gateway runs in this very process. */
import { spawn } from 'node:child_process'

export interface Program {
  readonly argv: readonly [string, ...string[]]
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  readonly input?: string
}

export interface ProgramResult {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** A client that hangs is a fault of the gateway; the test shall say so before vitest gives up on it. */
export const PATIENCE_MS = 110_000

/** Never rejects because of an exit code; rejects when the program can't be started or takes too long. */
export function runProgram(program: Program): Promise<ProgramResult> {
  const [file, ...args] = program.argv
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, { cwd: program.cwd, env: program.env ?? {} })
    const text = { stdout: '', stderr: '' }
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text.stdout += chunk))
    child.stderr.setEncoding('utf8').on('data', (chunk: string) => (text.stderr += chunk))
    child.stdin.on('error', () => undefined).end(program.input ?? '')
    const timer = setTimeout(() => {
      child.kill('SIGKILL')
      reject(new Error(`\`${file}\` did not end within ${PATIENCE_MS} ms\n${text.stdout}\n${text.stderr}`))
    }, PATIENCE_MS)
    child.on('error', reject)
    child.on('close', (code) => {
      clearTimeout(timer)
      resolve({ code, ...text })
    })
  })
}
