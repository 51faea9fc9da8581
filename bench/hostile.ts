/**
 * What one hostile client does to the others: `node bench/hostile.ts [--only WORDS] [--rounds 5] [--seconds 6] [--rate 10000] [--good 200] [--shared] [--core 1]
 * [--json FILE]`. Good clients open tunnels at a steady rate, by turns alone and beside each kind of hostile client; prints the median and p99 of their CONNECTs,
 * and of each turn its p99 to that of the quiet turn before it. Hostile clients come from 127.0.0.1, the good ones from 127.0.1.1 to 8; with `--shared` all have
 * one address, as behind a NAT. The gateway runs on one core, all else on the others, hostile generators with less of it. Needs the load kit (`BENCH_KIT`),
 * gcc, Linux, bash and taskset.
 */
import { spawn } from 'node:child_process'
import crypto from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import {
  type BenchGateway,
  FOR_MANY_TUNNELS,
  processorSeconds,
  reachable,
  runBeside,
  startBenchGateway,
} from './bench-gateway.ts'
import { buildKit, checkKit, openTunnels, startLoad, startOrigin } from './load-kit.ts'

const HOST = '127.0.0.1'
const ORIGIN_BASE = 9200
const LESS = 10
const WARM_SECONDS = 1
/** For a hostile client to begin. */
const BEGIN_MS = 1500
/** The gateway is through with what was left of one when it takes no more than this of a core. */
const QUIET = 0.05
const LONGEST_REST_MS = 60_000
/** More than are remembered as refused. */
const RANDOM_TOKENS = 40_000
const HANGING = 'https://hangs.example.test'
const REFUSED = ['--mode', 'connect-rate', '--name', 'refused.example.test:443', '--conns', '2000', '--timeout', '5000']

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '6' },
    rate: { type: 'string', default: '10000' },
    good: { type: 'string', default: '200' },
    shared: { type: 'boolean', default: false },
    core: { type: 'string', default: '1' },
    json: { type: 'string' },
  },
})
const core = Number(values.core)
let floods = 0
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-hostile-'))
process.once('exit', () => fs.rmSync(folder, { recursive: true, force: true }))
await runBeside(core, main)

/** Starts what is hostile; the result ends it. */
type Hostile = () => () => void | Promise<void>

interface Turn {
  readonly what: string
  readonly round: number
  readonly p50Ms: number
  readonly p99Ms: number
  /** Of the good clients, those that got no tunnel. */
  readonly failed: number
  /** Of a core, by the gateway. */
  readonly processor: number
}

async function main(): Promise<void> {
  checkKit()
  const kit = buildKit(folder)
  const origin = await startOrigin(kit.origin, ORIGIN_BASE)
  const keys = http.createServer(() => undefined).listen(0, HOST)
  await once(keys, 'listening')
  const jwks = `http://${HOST}:${(keys.address() as net.AddressInfo).port}/`
  const gateway = await startBenchGateway(core, {
    ...FOR_MANY_TUNNELS,
    issuers: [{ issuer: HANGING, algorithms: ['ES256'], jwks }],
  })
  const turns: Turn[] = []
  try {
    const tokens = await goodTokens(gateway)
    const from = values.shared ? [] : ['--src-count', '8']
    const good = async (what: string, round: number): Promise<Turn> => {
      const rate = ['--rate', values.good, '--conns', '3000', '--warmup', String(WARM_SECONDS)]
      const startedCpu = processorSeconds(gateway.pid)
      const how = [...rate, ...from, '--duration', values.seconds, '--auth-file', tokens]
      const result = await openTunnels(kit.loadgen, gateway.port, ORIGIN_BASE, how)
      const { p50, p99 } = result.connect_us
      const processor = (processorSeconds(gateway.pid) - startedCpu) / (Number(values.seconds) + WARM_SECONDS)
      return { what, round, p50Ms: p50 / 1000, p99Ms: p99 / 1000, failed: result.errors, processor }
    }
    const all = Object.entries(await hostileKinds(gateway, kit.loadgen))
    const kinds = all.filter(([what]) => what.includes(values.only))
    if (kinds.length === 0) {
      console.error(
        `no hostile client is called \`${values.only}\`; there are: ${all.map(([what]) => what).join(', ')}`,
      )
      process.exitCode = 2
      return
    }
    // A program that has just begun is compiled while it runs.
    for (let count = 0; count < 3; count++) await good('warming up', 0)
    for (let round = 1; round <= Number(values.rounds); round++)
      for (const [what, begin] of kinds) {
        turns.push(await good(`quiet before ${what}`, round))
        const end = begin()
        await pause(BEGIN_MS)
        turns.push(await good(what, round))
        await end()
        await settled(gateway)
        const [quiet, beside] = turns.slice(-2) as [Turn, Turn]
        console.error(
          `${round} ${what}: p99 ${beside.p99Ms.toFixed(2)} ms, quiet ${quiet.p99Ms.toFixed(2)} ms, ${beside.failed} failed`,
        )
      }
    report(
      kinds.map(([what]) => what),
      turns,
    )
  } finally {
    await gateway.stop()
    origin.kill()
    keys.close()
    keys.closeAllConnections()
    fs.rmSync(gateway.folder, { recursive: true, force: true })
  }
  if (values.json !== undefined) fs.writeFileSync(values.json, `${JSON.stringify(turns, null, 2)}\n`)
}

function report(kinds: readonly string[], turns: readonly Turn[]): void {
  console.log(
    ['beside', 'median ms', 'p99 ms', 'quiet median', 'quiet p99', 'p99 to quiet (least-most)', 'failed', 'processor %']
      .map(String)
      .join('\t'),
  )
  for (const what of kinds) {
    const beside = turns.filter((turn) => turn.what === what)
    const quiet = turns.filter((turn) => turn.what === `quiet before ${what}`)
    const ratios = beside.map(({ p99Ms }, index) => p99Ms / (quiet[index]?.p99Ms ?? NaN))
    const cells = [beside, quiet].flatMap((of) => [
      median(of.map(({ p50Ms }) => p50Ms)),
      median(of.map(({ p99Ms }) => p99Ms)),
    ])
    const spread = `${median(ratios).toFixed(2)} (${Math.min(...ratios).toFixed(2)}-${Math.max(...ratios).toFixed(2)})`
    const failed = beside.reduce((sum, turn) => sum + turn.failed, 0)
    const processor = median(beside.map((turn) => turn.processor)) * 100
    console.log([what, ...cells.map((cell) => cell.toFixed(2)), spread, failed, processor.toFixed(0)].join('\t'))
  }
}

/** `Proxy-Authorization` values of as many sandboxes as are usual, in a file. */
async function goodTokens(gateway: BenchGateway): Promise<string> {
  const tokens = await Promise.all(Array.from({ length: 50 }, (_none, at) => gateway.token({ sub: `good_${at}` })))
  return fileOf('good', bearers(tokens))
}

async function hostileKinds(gateway: BenchGateway, loadgen: string): Promise<Readonly<Record<string, Hostile>>> {
  const egress = { kind: 'static', allowedHosts: ['allowed.example.test'] }
  const refused = await gateway.token({ sub: 'hostile', egress })
  const [header = '', payload = ''] = refused.split('.')
  const signature = () => crypto.randomBytes(64).toString('base64url')
  const madeUp = (count: number, head: string, body: (at: number) => string) =>
    bearers(Array.from({ length: count }, (_none, at) => `${head}.${body(at)}.${signature()}`))
  const unknownKey = encode({ alg: 'ES256', kid: 'unknown', typ: 'egress+jwt' })
  const claims = JSON.parse(Buffer.from(payload, 'base64url').toString()) as object
  const files = {
    refused: fileOf('refused', bearers([refused])),
    random: fileOf(
      'random',
      bearers(Array.from({ length: RANDOM_TOKENS }, () => crypto.randomBytes(24).toString('hex'))),
    ),
    unsigned: fileOf(
      'unsigned',
      madeUp(RANDOM_TOKENS, header, () => payload),
    ),
    huge: fileOf(
      'huge',
      madeUp(5_000, header, (at) => encode({ ...claims, at, more: 'x'.repeat(4_800) })),
    ),
    hanging: fileOf(
      'hanging',
      madeUp(RANDOM_TOKENS, unknownKey, (at) => encode({ ...claims, iss: HANGING, at })),
    ),
  }
  const proxy = ['--proxy', `${HOST}:${gateway.port}`, '--target', `${HOST}:${ORIGIN_BASE + 1}`]
  const rate = ['--rate', values.rate, '--duration', '3600']
  const load = (args: readonly string[]): Hostile => {
    return () => startLoad(loadgen, [...args, ...rate], LESS).stop
  }
  const connects = (tokens: string) => load([...REFUSED, ...proxy, '--auth-file', tokens])
  const connect = (token: string, more = '') =>
    `CONNECT refused.example.test:443 HTTP/1.1\r\nHost: x\r\n${more}Proxy-Authorization: Bearer ${token}\r\n\r\n`
  const asked = `GET http://refused.example.test/ HTTP/1.1\r\nHost: refused.example.test\r\nProxy-Authorization: Bearer ${refused}\r\n\r\n`
  const heads = Array.from({ length: 8 }, (_none, at) => connect(refused, `X-${at}: ${'y'.repeat(64 * 1024)}\r\n`))
  const program = path.join(import.meta.dirname, 'flood.ts')
  const flood = (messages: readonly (string | Buffer)[], perSecond: string, ...more: readonly string[]): Hostile => {
    const file = fileOf(
      `flood-${String(floods++)}`,
      messages.map((one) => Buffer.from(one).toString('base64')),
    )
    return () => {
      const args = ['-n', String(LESS), process.execPath, program, String(gateway.port), perSecond, file, ...more]
      const child = spawn('nice', args, { stdio: 'ignore' })
      return () => void child.kill()
    }
  }
  return {
    'connections that say nothing': load([
      '--mode',
      'connect-rate',
      '--proxy',
      'direct',
      '--target',
      `${HOST}:${gateway.port}`,
      '--conns',
      '2000',
    ]),
    'refused by policy': connects(files.refused),
    'random tokens': connects(files.random),
    'signatures made up': connects(files.unsigned),
    'huge tokens': connects(files.huge),
    'keys that hang': connects(files.hanging),
    'slow heads': flood([connect(refused)], '0', '--drip', '2000'),
    'huge heads': flood(heads, '1000'),
    'refused by SOCKS5': flood([socksRequest(refused)], values.rate),
    'refused HTTP': flood([asked], values.rate),
    'a bare server on that core': bareServer(loadgen),
  }
}

/** The same flood for another process on the gateway's core, which only accepts and closes: what of it is the system's. */
function bareServer(loadgen: string): Hostile {
  const port = 9299
  const listen = `require('net').createServer({pauseOnConnect:true},(s)=>s.destroy()).listen({port:${port},host:'${HOST}',backlog:4096,reusePort:true})`
  return () => {
    const program = `for(let i=0;i<8;i++)${listen}`
    const server = spawn('taskset', ['-c', String(core), process.execPath, '-e', program], { stdio: 'inherit' })
    let stop = (): void => undefined
    const started = reachable(port).then(() => {
      const args = ['--mode', 'connect-rate', '--proxy', 'direct', '--target', `${HOST}:${port}`, '--conns', '2000']
      ;({ stop } = startLoad(loadgen, [...args, '--rate', values.rate, '--duration', '3600'], LESS))
    })
    return async () => {
      await started
      stop()
      server.kill()
    }
  }
}

/** Greeting, login and request in one piece. @see RFC 1928, RFC 1929 */
function socksRequest(token: string): Buffer {
  const host = Buffer.from('refused.example.test')
  // A login holds no more than 255 bytes of password: the token goes on in the name, as far as it is known there; else it is refused for what it is.
  const [user, password] = [Buffer.from('token'), Buffer.from(token).subarray(0, 255)]
  return Buffer.concat([
    Buffer.from([5, 1, 2, 1, user.length]),
    user,
    Buffer.from([password.length]),
    password,
    Buffer.from([5, 1, 0, 3, host.length]),
    host,
    Buffer.from([443 >> 8, 443 & 255]),
  ])
}

function bearers(tokens: readonly string[]): readonly string[] {
  return tokens.map((token) => `Bearer ${token}`)
}

function encode(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}

function fileOf(name: string, lines: readonly string[]): string {
  const file = path.join(folder, name)
  fs.writeFileSync(file, `${lines.join('\n')}\n`)
  return file
}

async function settled({ pid }: BenchGateway): Promise<void> {
  for (const untilMs = performance.now() + LONGEST_REST_MS; performance.now() < untilMs;) {
    const before = processorSeconds(pid)
    await pause(1000)
    if (processorSeconds(pid) - before <= QUIET) return
  }
}

function median(values: readonly number[]): number {
  return [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)] ?? NaN
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
