/**
 * So many decisions a second for a minute, by a gateway on one core whose OTLP sink never answers: is every one of them in the files, does memory stay
 * bounded, and does the sink get all of it once it answers? `node bench/sustained.ts [--rate 5000] [--seconds 60] [--kind refused|http|tunnel]
 * [--core 1]`. Needs Linux, bash and taskset. The gateway runs on that one core. Ends with 1 if anything is missing.
 */
import { once } from 'node:events'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { parseVerifyKeys } from '../proxy/audit/key.ts'
import { verifyAudit } from '../proxy/audit/verify.ts'
import { type BenchGateway, processorSeconds, residentBytes, startBenchGateway, runBeside } from './bench-gateway.ts'

const HOST = '127.0.0.1'
const SANDBOXES = 200
/** Requests that are under way at a time; a gateway that is too slow takes longer than it was given. */
const MAX_UNDER_WAY = 2_000
const TICK_MS = 10
/** At half the rate, before anything is measured; its lines count too. */
const WARM_SECONDS = 5
/** Without new lines for so long, the sink has all. */
const SINK_WAIT_MS = 180_000

type Kind = 'refused' | 'http' | 'tunnel'

interface Asked {
  answered: number
  failed: number
}

const { values } = parseArgs({
  options: {
    rate: { type: 'string', default: '5000' },
    seconds: { type: 'string', default: '60' },
    kind: { type: 'string', default: 'refused' },
    core: { type: 'string', default: '1' },
  },
})
await runBeside(Number(values.core), main)

async function main(): Promise<void> {
  const rate = Number(values.rate)
  const seconds = Number(values.seconds)
  const kind = values.kind as Kind
  const sink = await startSink()
  const origin = http.createServer((_request, response) => response.end('ok')).listen(0, HOST, 16_384)
  await once(origin, 'listening')
  const gateway = await startBenchGateway(Number(values.core), {
    policy: { ceiling: { kind: 'allow-all' } },
    network: { allowPrivate: ['127.0.0.0/8'] },
    limits: { tunnels: 50_000, perSandbox: { tunnels: 50_000, newPerSecond: 100_000 } },
    audit: { sinks: [{ kind: 'otlp', url: `http://${HOST}:${sink.port}/v1/logs` }] },
  })
  try {
    const { port } = origin.address() as net.AddressInfo
    const asking = await askerOf(kind, gateway, port)
    // A program that has just begun is compiled while it runs.
    const warm = await askFor(asking, rate / 2, WARM_SECONDS)
    const memory: number[] = []
    const startedCpu = processorSeconds(gateway.pid)
    const startedMs = performance.now()
    const watch = setInterval(() => memory.push(residentBytes(gateway.pid)), 1000)
    const asked = await askFor(asking, rate, seconds)
    clearInterval(watch)
    const tookSeconds = (performance.now() - startedMs) / 1000
    const cores = (processorSeconds(gateway.pid) - startedCpu) / tookSeconds
    asking.close()
    const stalled = sink.taken()

    sink.answer()
    const lineCount = () => linesOf(gateway.folder).length
    await sink.settled(lineCount)
    await gateway.stop()
    report({ kind, rate, tookSeconds, cores, asked, memory, stalled })
    await check(gateway, sink, warm.answered + asked.answered, warm.failed + asked.failed)
  } finally {
    await gateway.stop()
    sink.close()
    origin.close()
    origin.closeAllConnections()
    fs.rmSync(gateway.folder, { recursive: true, force: true })
  }
}

function report(run: {
  readonly kind: Kind
  readonly rate: number
  readonly tookSeconds: number
  readonly cores: number
  readonly asked: Asked
  readonly memory: readonly number[]
  readonly stalled: number
}): void {
  const { kind, rate, tookSeconds, cores, asked, memory, stalled } = run
  const mib = (bytes: number) => (bytes / 1024 / 1024).toFixed(0)
  console.log(`${kind}: asked for ${rate} a second over ${tookSeconds.toFixed(1)} s`)
  console.log(
    `answered ${asked.answered} (${(asked.answered / tookSeconds).toFixed(0)} a second), failed ${asked.failed}`,
  )
  console.log(`processor: ${(cores * 100).toFixed(0)}% of one core`)
  const tens = memory.filter((_bytes, second) => second % 10 === 0 || second === memory.length - 1)
  console.log(`resident MiB, every ten seconds: ${tens.map(mib).join(' ')}`)
  console.log(`lines that the sink took while it was stalled: ${stalled}`)
}

/** Nothing lost: each answer has its line, the chain holds, and the sink got every line. */
async function check(gateway: BenchGateway, sink: Sink, answered: number, failed: number): Promise<void> {
  const lines = linesOf(gateway.folder)
  const decisions = lines.filter((line) => line.includes('"kind":"decision"')).length
  const state = path.join(gateway.folder, 'state')
  const keyFile = path.join(state, 'audit-key.public.jwk')
  const keys = parseVerifyKeys(fs.readFileSync(keyFile, 'utf8'), keyFile)
  const verified = await verifyAudit({ paths: [path.join(state, 'audit')], keys })
  const missing = lines.length - sink.seqs.size
  console.log(
    `lines in the files: ${lines.length}, decisions: ${decisions}; audit verify: ${verified.ok ? 'ok' : JSON.stringify(verified)}`,
  )
  console.log(`lines that the sink has in the end: ${sink.seqs.size}`)
  if (decisions !== answered || failed > 0 || !verified.ok || missing > 0) {
    console.error(`missing: ${answered - decisions} decisions in the files, ${missing} lines in the sink`)
    process.exitCode = 1
  }
}

function linesOf(folder: string): readonly string[] {
  const audit = path.join(folder, 'state/audit')
  return fs
    .readdirSync(audit)
    .filter((name) => name.endsWith('.jsonl'))
    .sort()
    .flatMap((name) => fs.readFileSync(path.join(audit, name), 'latin1').split('\n'))
    .filter((line) => line !== '')
}

/** Asks once; resolves when it was answered as it should be. */
interface Asker {
  readonly ask: () => Promise<boolean>
  readonly close: () => void
}

async function askerOf(kind: Kind, gateway: BenchGateway, originPort: number): Promise<Asker> {
  const egress = kind === 'refused' ? { egress: { kind: 'static', allowedHosts: ['allowed.example.test'] } } : {}
  const tokens = await Promise.all(
    Array.from({ length: SANDBOXES }, (_none, index) => gateway.token({ sub: `sbx_${index}`, ...egress })),
  )
  let turn = 0
  const nextToken = () => tokens[turn++ % tokens.length] ?? ''
  if (kind !== 'http') {
    const target = kind === 'refused' ? 'refused.example.test:443' : `${HOST}:${originPort}`
    const status = kind === 'refused' ? 'HTTP/1.1 403 ' : 'HTTP/1.1 200 '
    return {
      ask: () =>
        askOnce(
          gateway.port,
          `CONNECT ${target} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${nextToken()}\r\n\r\n`,
          status,
        ),
      close: () => undefined,
    }
  }
  const agent = new http.Agent({ keepAlive: true, maxSockets: 200 })
  const target = `http://${HOST}:${originPort}/`
  return {
    ask: () =>
      new Promise((resolve) => {
        const request = http.request({
          agent,
          host: HOST,
          port: gateway.port,
          path: target,
          headers: { host: `${HOST}:${originPort}`, 'proxy-authorization': `Bearer ${nextToken()}` },
        })
        request.on('error', () => resolve(false))
        request.on('response', (response) => {
          response.resume()
          response.on('end', () => resolve(response.statusCode === 200))
          response.on('error', () => resolve(false))
        })
        request.end()
      }),
    close: () => agent.destroy(),
  }
}

function askOnce(port: number, head: string, status: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect(port, HOST)
    let isRight = false
    socket.on('error', () => socket.destroy())
    socket.on('data', (chunk) => {
      isRight ||= chunk.toString('latin1', 0, status.length) === status
      socket.end()
    })
    socket.on('close', () => resolve(isRight))
    socket.write(head)
  })
}

/** Asks when it is time to; what the gateway was too slow for is asked as soon as there is room. */
async function askFor({ ask }: Asker, rate: number, seconds: number): Promise<Asked> {
  const asked: Asked = { answered: 0, failed: 0 }
  const total = rate * seconds
  let underWay = 0
  let sent = 0
  const startedMs = performance.now()
  while (sent < total || underWay > 0) {
    const due = Math.min(total, ((performance.now() - startedMs) / 1000) * rate)
    while (sent < due && underWay < MAX_UNDER_WAY) {
      sent += 1
      underWay += 1
      void ask().then((isRight) => {
        underWay -= 1
        if (isRight) asked.answered += 1
        else asked.failed += 1
      })
    }
    await new Promise((resolve) => setTimeout(resolve, TICK_MS))
  }
  return asked
}

/** A collector that takes requests and says nothing, until it is told to answer. */
interface Sink {
  readonly port: number
  readonly seqs: ReadonlySet<number>
  readonly taken: () => number
  readonly answer: () => void
  /** Resolves when it has as many lines as there are, or none came for long. */
  readonly settled: (lines: () => number) => Promise<void>
  readonly close: () => void
}

async function startSink(): Promise<Sink> {
  const seqs = new Set<number>()
  let answers = false
  let lastMs = performance.now()
  const server = http.createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      if (!answers) return
      for (const [, seq] of Buffer.concat(chunks)
        .toString('latin1')
        .matchAll(/"sallyport\.seq","value":\{"intValue":"(\d+)"/g))
        seqs.add(Number(seq))
      lastMs = performance.now()
      response.end('{}')
    })
  })
  server.listen(0, HOST)
  await once(server, 'listening')
  return {
    port: (server.address() as net.AddressInfo).port,
    seqs,
    taken: () => seqs.size,
    answer: () => {
      answers = true
      lastMs = performance.now()
      // Those that hang are not to wait for the end of their patience.
      server.closeAllConnections()
    },
    settled: async (lines) => {
      while (performance.now() - lastMs < SINK_WAIT_MS && seqs.size < lines())
        await new Promise((resolve) => setTimeout(resolve, 1000))
    },
    close: () => {
      server.close()
      server.closeAllConnections()
    },
  }
}
