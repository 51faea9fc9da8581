/** Entry of the bundle: `node worker.cjs [--init] SETTINGS`, where SETTINGS is a JSON file or `-` for the first line of stdin. */
import fs from 'node:fs'
import stream from 'node:stream'
import { readSettings } from './read-settings.ts'
import { startWorker, type Worker } from './worker.ts'

// A shell waits for any child, also those that were handed to it; Node does not. So where orphans come to this process, a shell stands above it.
const INIT = `
exec 3<&0 </dev/null
"$@" <&3 3<&- & worker=$!
exec 3<&-
trap 'kill -TERM $worker' TERM INT HUP
while :; do
  wait $worker; status=$?
  kill -0 $worker 2>/dev/null || exit $status
done`
const SHELL = '/bin/sh'
const O_CLOEXEC = 0o2000000

// Nobody is told of one, and to write one down V8 reads all functions in it once more.
Error.stackTraceLimit = 0
// Node compares each socket that ends or is piped with these two, and makes sockets of them for that, which a start waits for. Only Node's own warnings are written.
for (const [name, fd] of [
  ['stdout', 1],
  ['stderr', 2],
] as const) {
  const write = (bytes: Buffer, _encoding: string, done: () => void): void => {
    fs.writeSync(fd, bytes)
    done()
  }
  Object.defineProperty(process, name, { value: new stream.Writable({ write }) })
}

closeInherited()
const [source] = process.argv.slice(2).filter((argument) => argument !== '--init')
if (source === undefined) {
  fs.writeSync(2, 'usage: worker [--init] SETTINGS\n')
  process.exit(2)
}
if (process.pid === 1 || process.argv.includes('--init')) becomeChildOfShell(source)
let worker: Worker | undefined
void start(source)

async function start(source: string): Promise<void> {
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => stop(0))
  // With nobody to take it, Node opens its debugger to whoever sent this, and so to any command.
  process.on('SIGUSR1', () => undefined)
  try {
    const settings = readSettings(source)
    worker = await startWorker(settings, () => process.exit(0))
    const report = worker.probed === undefined ? '' : ` ${JSON.stringify(worker.probed)}`
    if (settings.announce === true) fs.writeSync(1, `ready${report}\n`)
    // Not before that, which somebody waits for.
    if (settings.endWithStdin === true)
      process.stdin
        .resume()
        .on('end', () => stop(0))
        .on('error', () => stop(0))
  } catch (error) {
    fs.writeSync(2, `worker: ${error instanceof Error ? error.message : 'cannot start'}\n`)
    process.exit(1)
  }
}

/** Closes what whoever started this process left open and would now leave to every child: Node marks its own descriptors, and only low foreign ones. */
function closeInherited(): void {
  if (!fs.existsSync('/proc/self/fdinfo')) return
  for (const fd of fs.readdirSync('/proc/self/fd').map(Number)) {
    if (fd <= 2) continue
    try {
      const flags = /^flags:\s*(\d+)/m.exec(fs.readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1]
      if (flags !== undefined && (parseInt(flags, 8) & O_CLOEXEC) === 0) fs.closeSync(fd)
    } catch {
      // The descriptor of the list itself is gone by now.
    }
  }
}

function stop(status: number): never {
  worker?.close()
  process.exit(status)
}

/** Replaces this process by a shell that starts it anew; does nothing where that cannot be done, and zombies then stay until the end. */
function becomeChildOfShell(source: string): void {
  if (typeof process.execve !== 'function' || !fs.existsSync(SHELL)) return
  const [script = ''] = process.argv.slice(1)
  process.execve(SHELL, ['sh', '-c', INIT, 'sh', process.execPath, ...process.execArgv, script, source], process.env)
}
