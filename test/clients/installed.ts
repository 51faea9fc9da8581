/** Which clients this machine has. One that is missing is skipped with its reason; in CI, which installs them, it is a failure. */
import { spawnSync } from 'node:child_process'
import { describe, test } from 'vitest'

interface Client {
  /** Ends with 0 where the client is there. */
  readonly probe: readonly [string, ...string[]]
  /** Debian's package. */
  readonly debian: string
}

const CLIENTS = {
  curl: { probe: ['curl', '--version'], debian: 'curl' },
  wget: { probe: ['wget', '--version'], debian: 'wget' },
  git: { probe: ['sh', '-c', 'test -x "$(git --exec-path)/git-http-backend"'], debian: 'git' },
  openssl: { probe: ['openssl', 'version'], debian: 'openssl' },
  'Python with requests': { probe: ['python3', '-c', 'import requests'], debian: 'python3-requests' },
  Java: { probe: ['javac', '--version'], debian: 'default-jdk-headless' },
  Chromium: { probe: ['which', 'chromium'], debian: 'chromium' },
} satisfies Record<string, Client>

/** A `describe` for tests that need `client`. */
export function describeWith(client: keyof typeof CLIENTS, name: string, body: () => void): void {
  const { probe, debian } = CLIENTS[client]
  if (isThere(probe)) {
    describe(name, body)
    return
  }
  const reason = `${client} is not installed (Debian: ${debian})`
  if (process.env['CI'] === 'true') {
    test(name, () => {
      throw new Error(reason)
    })
    return
  }
  skip(name, reason, body)
}

/** Leaves tests out and says why. */
export function skip(name: string, reason: string, body: () => void): void {
  console.log(`skipped: ${name}: ${reason}`)
  describe.skip(`${name} (${reason})`, body)
}

/** The interpreter itself: a version manager's stand-in for it looks for its files in the home folder, which clients don't get. */
export function pythonInterpreter(): string {
  interpreter ??= spawnSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).stdout.trim()
  return interpreter
}
let interpreter: string | undefined

function isThere([file, ...args]: Client['probe']): boolean {
  return spawnSync(file, args, { stdio: 'ignore' }).status === 0
}
