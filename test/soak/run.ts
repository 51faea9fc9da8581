/**
 * Hours of everything at once: `npm run soak [-- --minutes 60] [--rate 60]`
 *
 * Two gateways share a state folder and an audit folder. One is killed again and again; the other lives from beginning to end, and its heap is compared.
 * Meanwhile origins reset, names do not resolve, the disk of the audit log is full for a while, tokens are revoked and the configuration is reloaded. In the
 * end every connection that a client saw is accounted for in the log, and the log verifies. Needs Linux and the right to mount: the disk is a tmpfs in a
 * mount namespace of its own. Ends with 1 when something is not as it must be.
 */
import { spawnSync } from 'node:child_process'
import crypto from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { SignJWT } from 'jose'
import { parseVerifyKeys } from '../../proxy/audit/key.ts'
import { verifyAudit } from '../../proxy/audit/verify.ts'
import { systemClock } from '../../proxy/clock.ts'
import { openRevocations } from '../../proxy/state/revocations.ts'
import { startDnsServer } from '../proxy/egress/dns-server.ts'
import { type SoakLine, type Span, unaccounted } from './account.ts'
import { connectOnce, type Seen } from './client.ts'
import { soakGateway } from './gateways.ts'

const IN_NAMESPACE = 'SALLYPORT_SOAK_NAMESPACE'
const ISSUER = 'https://soak.example.test'
const MINUTE_MS = 60_000
/** Of the audit log, at most; most of it is never used. */
const DISK = '2g'
const MOST_OPEN = 500
/** More than this after a collection, and more than a third more than before, is a leak. */
const HEAP_SLACK = 8 * 1024 * 1024

if (process.env[IN_NAMESPACE] === undefined) {
  const inside = [process.execPath, ...process.argv.slice(1)]
  const { status, error } = spawnSync('unshare', ['--mount', '--propagation', 'private', '--', ...inside], {
    stdio: 'inherit',
    env: { ...process.env, [IN_NAMESPACE]: '1' },
  })
  if (error) console.error(`a mount namespace can't be made here: ${error.message}`)
  process.exit(status ?? 1)
}

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '60' }, rate: { type: 'string', default: '60' } },
})
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-soak-'))
const disk = path.join(folder, 'disk')
fs.mkdirSync(disk)
mount('-t', 'tmpfs', '-o', `size=${DISK}`, 'none', disk)
try {
  process.exitCode = (await soak(Number(values.minutes) * MINUTE_MS, Number(values.rate))) ? 0 : 1
} finally {
  spawnSync('umount', ['-l', disk])
  fs.rmSync(folder, { recursive: true, force: true })
}

async function soak(ms: number, rate: number): Promise<boolean> {
  const spans: Span[] = []
  const during = async (span: Pick<Span, 'what' | 'gateway'>, work: () => Promise<void>): Promise<void> => {
    const fromMs = Date.now()
    await work()
    spans.push({ ...span, fromMs, toMs: Date.now() })
  }
  const { privateKey, publicKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const jwk = { ...publicKey.export({ format: 'jwk' }), kid: 'soak', alg: 'ES256', use: 'sig' }
  fs.writeFileSync(path.join(folder, 'jwks.json'), JSON.stringify({ keys: [jwk] }))
  let resets = false
  const origin = net.createServer((socket) => {
    socket.on('error', () => socket.destroy())
    if (resets) socket.resetAndDestroy()
    else socket.pipe(socket)
  })
  origin.listen(0, '127.0.0.1')
  await once(origin, 'listening')
  const { port } = origin.address() as net.AddressInfo
  let flaps = false
  const dns = await startDnsServer(({ name, type }) => {
    if (flaps) return name.length % 2 === 0 ? undefined : { rcode: 2 }
    return { answers: type === 'A' ? [{ type: 'A', name, ttl: 1, data: '127.0.0.1' }] : [] }
  })
  const state = path.join(folder, 'state')
  const document = {
    state,
    log: { level: 'error' },
    issuers: [{ issuer: ISSUER, algorithms: ['ES256'], jwks: path.join(folder, 'jwks.json') }],
    policy: { ceiling: { kind: 'static', allowedHosts: [`*.let.example.test:${port}`] } },
    network: { allowPrivate: ['127.0.0.0/8'], resolvers: [dns.text] },
    limits: { tunnels: 5000, perSandbox: { tunnels: 5000, newPerSecond: 5000 } },
    audit: { path: path.join(disk, 'audit'), maxFileBytes: 1024 * 1024 },
  } as const
  const steady = soakGateway(folder, 'steady', document)
  const killed = soakGateway(folder, 'killed', document)
  await steady.start()
  await killed.start()
  const revocations = await openRevocations(path.join(state, 'revocations'), systemClock)

  let generation = 0
  const tokenOf = async (): Promise<string> => {
    const now = Math.floor(Date.now() / 1000)
    return new SignJWT({
      iss: ISSUER,
      aud: 'sallyport',
      iat: now - 5,
      exp: now + 7200,
      jti: `t${generation++}`,
      sub: 'soak',
      egress: { kind: 'allow-all' },
    })
      .setProtectedHeader({ alg: 'ES256', kid: 'soak', typ: 'egress+jwt' })
      .sign(privateKey)
  }
  const tokens = await Promise.all(Array.from({ length: 20 }, tokenOf))
  const ids = tokens.map((_token, at) => `t${at}`)
  const seen: Seen[] = []
  const open = new Set<Promise<unknown>>()
  let count = 0
  let isOver = false
  const churn = async (): Promise<void> => {
    while (!isOver) {
      await pause(1000 / rate)
      if (open.size >= MOST_OPEN) continue
      const number = count++
      const gateway = number % 2 === 0 ? steady : killed
      const host = number % 7 === 0 ? `c${number}.refused.example.test` : `c${number}.let.example.test`
      const one = connectOnce(
        gateway.proxy,
        gateway.name,
        `${host}:${port}`,
        tokens[number % tokens.length]!,
        50 + ((number * 37) % 3000),
      )
      const kept = one.then((result) => {
        seen.push(result)
        open.delete(kept)
      })
      open.add(kept)
    }
  }
  /** Again and again, after a time that is never quite the same. */
  const again = async (everyMs: number, work: () => Promise<void>): Promise<void> => {
    const isDue = async (): Promise<boolean> => {
      await pause(everyMs * (0.5 + Math.random()))
      return !isOver
    }
    while (await isDue()) await work()
  }
  // A killed gateway takes along the lines that it could not write: the disk is full while nobody is killed.
  let turn = Promise.resolve()
  const inTurn = (work: () => Promise<void>): Promise<void> => (turn = turn.then(work))
  const doing = [
    churn(),
    again(11_000, () =>
      inTurn(() =>
        during({ what: 'kill', gateway: 'killed' }, async () => {
          await killed.kill()
          await killed.start()
        }),
      ),
    ),
    again(17_000, () =>
      inTurn(async () => {
        await during({ what: 'disk' }, async () => {
          fill(disk)
          await pause(2500)
          mount('-o', `remount,size=${DISK}`, disk)
        })
        // Until what was kept is written.
        await pause(3000)
      }),
    ),
    again(13_000, () =>
      during({ what: 'dns' }, async () => {
        flaps = true
        await pause(1500)
        flaps = false
      }),
    ),
    again(9000, () =>
      during({ what: 'reset' }, async () => {
        resets = true
        await pause(800)
        resets = false
      }),
    ),
    again(5000, async () => {
      const at = Math.floor(Math.random() * tokens.length)
      await revocations.revoke({ tokenId: ids[at]! })
      ids[at] = `t${generation}`
      tokens[at] = await tokenOf()
    }),
    again(7000, async () => {
      steady.signal('SIGHUP')
      await pause(0)
    }),
  ]
  await pause(ms / 3)
  const before = await steady.heapBytes()
  await pause((2 * ms) / 3)
  isOver = true
  await Promise.all(doing)
  await Promise.all(open)
  await pause(2000)
  const after = await steady.heapBytes()
  const resident = steady.residentBytes()
  const codes = [await steady.stop(), await killed.stop()]
  revocations.close()
  await dns.close()
  origin.close()

  const keyFile = path.join(state, 'audit-key.public.jwk')
  const keys = parseVerifyKeys(fs.readFileSync(keyFile, 'utf8'), keyFile)
  const verified = await verifyAudit({ paths: [document.audit.path], keys })
  const faults = unaccounted(seen, readLines(document.audit.path), spans)
  if (!verified.ok) faults.push(`the log does not verify: ${JSON.stringify(verified.fault)}`)
  if (after > before * 1.33 + HEAP_SLACK) faults.push(`the heap grew from ${before} to ${after} bytes`)
  if (codes.some((code) => code !== 0)) faults.push(`the gateways ended with ${codes.join(' and ')}`)
  for (const { name, errors } of [steady, killed]) {
    const unexplained = errors()
      .split('\n')
      .filter((line) => line !== '' && !line.includes('the audit log cannot be written'))
    faults.push(...unexplained.slice(0, 10).map((line) => `${name} says: ${line}`))
  }
  const answers = Map.groupBy(seen, ({ answer }) => answer)
  console.log(
    `${seen.length} connections: ${[...answers].map(([answer, all]) => `${all.length} ${answer}`).join(', ')}`,
  )
  console.log(
    `${(['kill', 'disk', 'dns', 'reset'] as const).map((what) => `${spans.filter((span) => span.what === what).length} ${what}`).join(', ')}; ${generation - 20} tokens revoked`,
  )
  console.log(
    `heap after a third ${mib(before)}, in the end ${mib(after)} MiB; resident ${mib(resident)} MiB; log ${verified.ok ? 'ok' : 'BROKEN'}, ${verified.instances.map(({ instance, lines, runs }) => `${instance}: ${lines} lines in ${runs.length} runs`).join(', ')}`,
  )
  for (const fault of faults.slice(0, 30)) console.error(`soak: ${fault}`)
  if (faults.length > 30) console.error(`soak: and ${faults.length - 30} more`)
  return faults.length === 0
}

function readLines(log: string): SoakLine[] {
  return fs
    .readdirSync(log)
    .filter((name) => name.endsWith('.jsonl'))
    .flatMap((name) => fs.readFileSync(path.join(log, name), 'latin1').split(/(?<=\n)/))
    .filter((line) => line.endsWith('\n'))
    .map((line) => JSON.parse(line) as SoakLine)
}

function usedBytes(mounted: string): number {
  const { blocks, bfree, bsize } = fs.statfsSync(mounted)
  return (blocks - bfree) * bsize
}

/** Leaves no room. A gateway may write between the look and the deed, and less than is used can't be had: then it is done again. */
function fill(mounted: string): void {
  for (let left = 50; ; left--) {
    try {
      mount('-o', `remount,size=${Math.max(4, Math.ceil(usedBytes(mounted) / 1024))}k`, mounted)
      return
    } catch (error) {
      if (left === 0) throw error
    }
  }
}

function mount(...args: string[]): void {
  const { status, stderr, error } = spawnSync('mount', args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`mount ${args.join(' ')}: ${error?.message ?? stderr}`)
}

function mib(bytes: number): string {
  return (bytes / 1024 / 1024).toFixed(1)
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
