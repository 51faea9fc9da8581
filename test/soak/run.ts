/**
 * Hours of everything at once: `npm run soak [-- --minutes 60] [--rate 60]`
 *
 * Three gateways share a state folder and an audit folder. One lives from beginning to end, one is killed again and again, and one has two workers of which
 * one is killed again and again; of the time two thirds have kills, the rest none. Meanwhile origins reset, names do not resolve, the disk of the audit log
 * is full for a while, tokens are revoked, and configurations are changed and reloaded. In the end every connection that a client saw is accounted for in
 * the log, every chain of the log verifies, and memory has not grown. Needs Linux and the right to mount: the disk is a tmpfs in a mount namespace of its
 * own. Ends with 1 when something is not as it must be.
 */
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import readline from 'node:readline'
import { parseArgs } from 'node:util'
import { freePort } from '../origins/free-port.ts'
import { parseVerifyKeys } from '../../proxy/audit/key.ts'
import { verifyAudit } from '../../proxy/audit/verify.ts'
import { type SoakLine, type Span, unaccounted } from './account.ts'
import { connectOnce, type Seen } from './client.ts'
import { fill, free, mountDisk, unmountDisk } from './disk.ts'
import { soakGateway } from './gateways.ts'
import { grown, type MemorySample, memoryText } from './memory.ts'
import { startOutside } from './outside.ts'
import { soakTokens } from './tokens.ts'

const IN_NAMESPACE = 'SALLYPORT_SOAK_NAMESPACE'
const MINUTE_MS = 60_000
const MOST_OPEN = 500
/** Kills come in the first two thirds of each of these. */
const LONGEST_CYCLE_MS = 6 * MINUTE_MS
const SAMPLES = 24
/** A timer that is so late says that the machine gave the soak no turn. */
const STALL_MS = 1000

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
mountDisk(disk)
try {
  process.exitCode = (await soak(Number(values.minutes) * MINUTE_MS, Number(values.rate))) ? 0 : 1
} finally {
  unmountDisk(disk)
  fs.rmSync(folder, { recursive: true, force: true })
}

async function soak(ms: number, rate: number): Promise<boolean> {
  const startedMs = Date.now()
  const state = path.join(folder, 'state')
  const log = path.join(disk, 'audit')
  const outside = await startOutside()
  const tokens = await soakTokens(folder, state)
  const letOut = `*.let.example.test:${outside.port}`
  const document = (generation: number) => ({
    state,
    log: { level: 'error' as const },
    issuers: tokens.issuers.map((issuer) => ({ ...issuer, algorithms: [...issuer.algorithms] })),
    policy: {
      ceiling: {
        kind: 'static' as const,
        allowedHosts: [letOut, ...Array.from({ length: 500 }, (_none, at) => `n${at}.g${generation}.example.test`)],
      },
    },
    network: { allowPrivate: ['127.0.0.0/8'], resolvers: [outside.resolver] },
    limits: { tunnels: 5000 + generation, perSandbox: { tunnels: 5000, newPerSecond: 5000 } },
    audit: { path: log, maxFileBytes: 1024 * 1024 },
  })
  const steady = soakGateway(folder, 'steady', document(0))
  const killed = soakGateway(folder, 'killed', document(0))
  const tree = soakGateway(folder, 'tree', document(0), await freePort())
  const gateways = [steady, killed, tree]
  const spans: Span[] = []
  const seen: Seen[] = []
  const samples = new Map([steady, tree].map((gateway): [typeof gateway, MemorySample[]] => [gateway, []]))
  const open = new Set<Promise<unknown>>()
  let isOver = false
  let reloads = 0

  const during = async (span: Pick<Span, 'what' | 'gateway'>, work: () => Promise<void>): Promise<void> => {
    const fromMs = Date.now()
    await work()
    spans.push({ ...span, fromMs, toMs: Date.now() })
  }
  const churn = async (): Promise<void> => {
    for (let number = 0; !isOver; number++) {
      await pause(1000 / rate)
      if (open.size >= MOST_OPEN) continue
      const { proxy, name: gateway } = gateways[number % gateways.length]!
      const target = `c${number}.${number % 7 === 0 ? 'refused' : 'let'}.example.test:${outside.port}`
      const token = (number % 11 === 0 ? tokens.bad() : undefined) ?? tokens.good()
      const one = connectOnce(proxy, { gateway, target, token }, 50 + ((number * 37) % 3000))
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
      for (const dueMs = Date.now() + everyMs * (0.5 + Math.random()); !isOver && Date.now() < dueMs;) await pause(100)
      return !isOver
    }
    while (await isDue()) await work()
  }
  const cycleMs = Math.min(LONGEST_CYCLE_MS, ms)
  const whileKilling = async (work: () => Promise<void>): Promise<void> => {
    if ((Date.now() - startedMs) % cycleMs < (cycleMs * 2) / 3) await inTurn(work)
  }
  // A killed gateway takes along the lines that it could not write: the disk is full while nobody is killed.
  let turn = Promise.resolve()
  const inTurn = (work: () => Promise<void>): Promise<void> => (turn = turn.then(work))

  /** The gateways have no turn either, then. */
  const watchForStalls = async (): Promise<void> => {
    while (!isOver) {
      const fromMs = Date.now()
      await pause(100)
      if (Date.now() - fromMs > STALL_MS) spans.push({ what: 'stall', fromMs, toMs: Date.now() })
    }
  }

  for (const gateway of gateways) await gateway.start()
  const doing = [
    churn(),
    watchForStalls(),
    again(15_000, () =>
      whileKilling(() =>
        during({ what: 'kill', gateway: killed.name }, async () => {
          await killed.kill()
          await killed.start()
        }),
      ),
    ),
    again(11_000, () => whileKilling(() => during({ what: 'kill', gateway: tree.name }, tree.killWorker))),
    again(17_000, () =>
      inTurn(async () => {
        await during({ what: 'disk' }, async () => {
          fill(disk)
          await pause(2500)
          free(disk)
        })
        // Until what was kept is written.
        await pause(3000)
      }),
    ),
    again(13_000, () =>
      during({ what: 'dns' }, async () => {
        outside.flaps = true
        await pause(1500)
        outside.flaps = false
      }),
    ),
    again(9000, () =>
      during({ what: 'reset' }, async () => {
        outside.resets = true
        await pause(800)
        outside.resets = false
      }),
    ),
    again(5000, tokens.revokeOne),
    again(7000, async () => {
      reloads++
      // Not the one that is just started: the signal would end it.
      for (const gateway of [steady, tree]) gateway.reload(document(reloads))
      await pause(0)
    }),
    again(ms / SAMPLES, async () => {
      for (const [gateway, own] of samples) own.push(await gateway.memory())
    }),
  ]
  await pause(ms)
  isOver = true
  await Promise.all(doing)
  await Promise.all(open)
  await pause(2000)
  const ends = [...samples].map(([gateway, own]) => ({ gateway, own, atEnd: gateway.memory() }))
  const faults: string[] = []
  for (const { gateway, own, atEnd } of ends) {
    const { descriptors } = await atEnd
    // Without a tunnel there are fewer than there were with some; what is left open shows above the most that a busy moment had, in time.
    const fewest = Math.min(...own.map((sample) => sample.descriptors))
    if (descriptors > fewest + 10)
      faults.push(`${gateway.name}: ${descriptors} descriptors are open, and there were ${fewest}`)
    faults.push(...grown(gateway.name, own))
  }
  const codes = await Promise.all(gateways.map((gateway) => gateway.stop()))
  tokens.close()
  await outside.close()

  const keyFile = path.join(state, 'audit-key.public.jwk')
  const keys = parseVerifyKeys(fs.readFileSync(keyFile, 'utf8'), keyFile)
  const verified = await verifyAudit({ paths: [log], keys })
  faults.push(...unaccounted(seen, await readLines(log), spans))
  if (!verified.ok) faults.push(`the log does not verify: ${JSON.stringify(verified.fault)}`)
  if (codes.some((code) => code !== 0)) faults.push(`the gateways ended with ${codes.join(', ')}`)
  const count = (what: Span['what'], gateway?: string): number =>
    spans.filter((span) => span.what === what && span.gateway === gateway).length
  const longest = (what: Span['what']): number =>
    spans.reduce((most, span) => (span.what === what ? Math.max(most, span.toMs - span.fromMs) : most), 0)
  for (const gateway of gateways)
    faults.push(...wrongWords(gateway.name, gateway.errors(), count('kill', gateway.name)))

  const answers = Map.groupBy(seen, ({ answer }) => answer)
  console.log(
    `${seen.length} connections: ${[...answers].map(([answer, { length }]) => `${length} ${answer}`).join(', ')}`,
  )
  console.log(
    `${count('kill', 'killed')} gateways and ${count('kill', 'tree')} workers killed, ${count('disk')} times a full disk, ${count('dns')} times no names, ${count('reset')} times resets, ${tokens.revoked} tokens revoked, ${reloads} reloads; ${count('stall')} stalls of the machine, ${longest('stall')} ms the longest`,
  )
  for (const [{ name }, own] of samples) console.log(`${name}: ${memoryText(own)}`)
  for (const { instance, lines, runs } of verified.instances)
    console.log(`log ${instance}: ${lines} lines, ${runs.length} runs`)
  console.log(verified.ok ? 'log: ok' : 'log: BROKEN')
  for (const fault of faults.slice(0, 30)) console.error(`soak: ${fault}`)
  if (faults.length > 30) console.error(`soak: and ${faults.length - 30} more`)
  return faults.length === 0
}

/** What a gateway said that nobody can explain: a full disk may be mentioned, and each worker that was killed, once. */
function wrongWords(name: string, said: readonly string[], kills: number): string[] {
  const isKill = (line: string): boolean => line.includes('"why":"SIGKILL"')
  const killsSaid = said.filter(isKill).length
  // Also by a worker that was to replace one when the disk was full.
  const others = said.filter((line) => !isKill(line) && !/the audit log can(?:no|')t be written/.test(line))
  return [
    ...others.slice(0, 10).map((line) => `${name} says: ${line}`),
    ...(name === 'tree' && killsSaid !== kills
      ? [`${name} says ${killsSaid} times that a worker was killed, not ${kills}`]
      : []),
  ]
}

async function readLines(log: string): Promise<SoakLine[]> {
  const lines: SoakLine[] = []
  for (const name of fs.readdirSync(log).sort()) {
    if (!name.endsWith('.jsonl')) continue
    for await (const text of readline.createInterface({ input: fs.createReadStream(path.join(log, name)) })) {
      // What a killed process had half written.
      if (!text.endsWith('}')) continue
      const { instance, kind, time, request_id, requested, effective, reason, close_reason, lost } = JSON.parse(
        text,
      ) as SoakLine
      lines.push(
        Object.fromEntries(
          Object.entries({ instance, kind, time, request_id, requested, effective, reason, close_reason, lost }).filter(
            ([, value]) => value !== undefined,
          ),
        ) as unknown as SoakLine,
      )
    }
  }
  return lines
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
