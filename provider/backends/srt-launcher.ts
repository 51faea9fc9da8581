/**
 * Runs one worker in a sandbox of `@anthropic-ai/sandbox-runtime`, which knows one configuration for each process: hence a program of its own.
 *
 * Input: a line of JSON ({@link SrtOrder}); its end is the end of everything. Output: what the worker says.
 */
import { spawn } from 'node:child_process'
import { chmodSync, linkSync, rmSync } from 'node:fs'
import net from 'node:net'
import { createInterface } from 'node:readline'
import { startLoopbackRelay } from './loopback-relay.ts'
import type { SrtOrder } from './srt-order.ts'

for await (const line of createInterface({ input: process.stdin })) {
  process.stdin.once('end', () => process.exit(0))
  await run(JSON.parse(line) as SrtOrder).catch((error: unknown) => {
    process.stderr.write(`${error instanceof Error ? error.message : 'the sandbox runtime failed'}\n`)
    process.exit(1)
  })
  break
}
process.stdin.resume()

async function run(order: SrtOrder): Promise<void> {
  const { SandboxManager } = await import('@anthropic-ai/sandbox-runtime')
  const [listener, relay] = await Promise.all([listen(order.socketPath), startLoopbackRelay(order.gatewaySocket)])
  await SandboxManager.initialize({
    // The gateway decides: this list only has to be there, since none at all would mean a network without limits.
    network: {
      allowedDomains: ['gateway.invalid'],
      deniedDomains: [],
      httpProxyPort: relay.port,
      socksProxyPort: relay.port,
    },
    filesystem: {
      denyRead: [...order.filesystem.denyRead],
      allowRead: [...order.filesystem.allowRead],
      allowWrite: [...order.filesystem.allowWrite],
      denyWrite: [...order.filesystem.denyWrite],
    },
  })
  const { argv, env } = await SandboxManager.wrapWithSandboxArgv(
    `exec ${quoted(order.node)} ${quoted(order.worker)} -`,
    'bash',
  )
  const [program = '', ...args] = argv
  const child = spawn(program, args, { env, stdio: ['pipe', 'inherit', 'inherit', listener.fd] })
  listener.close()
  child.stdin?.on('error', () => undefined)
  child.stdin?.write(`${JSON.stringify(order.settings)}\n`)
  child.once('error', (error) => {
    process.stderr.write(`${error.message}\n`)
    process.exit(1)
  })
  child.once('exit', (code) => process.exit(code ?? 1))
}

/** A socket that listens at `path` and is looked at by nobody here. */
async function listen(path: string): Promise<{ readonly fd: number; readonly close: () => void }> {
  // Node removes the name of a socket that it closes, so the lasting one is another.
  const own = `${path}.new`
  const server = net.createServer()
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(own, resolve)
  })
  chmodSync(own, 0o600)
  rmSync(path, { force: true })
  linkSync(own, path)
  // Node tells a listener's descriptor to nobody, and can hand it on all the same.
  const { fd } = (server as unknown as { readonly _handle: { readonly fd: number } })._handle
  return { fd, close: () => server.close() }
}

/** For a POSIX shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}
