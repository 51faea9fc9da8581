/** Small clients that run inside a sandbox, on its own Node. */
import type { Sandbox, SandboxProcess } from '../sandbox.ts'
import type { Bench } from './bench.ts'
import type { ConformanceSubject } from './check.ts'

/** What a client got. */
export interface Answer {
  /** Of the gateway, or of the origin once it is through. */
  readonly status: number
  readonly reason?: string
  readonly body: string
}

/** Its arguments are there as `args`; `identity` is what a client sends that has credentials for the gateway in its environment, as some backends give them. */
const WITH_ARGUMENTS =
  'const args = process.argv.slice(1); const net = require("node:net"); ' +
  'const own = new URL(process.env.http_proxy || "http://none"); ' +
  'const identity = own.username ? "Basic " + Buffer.from(own.username + ":" + own.password).toString("base64") : undefined; ' +
  'const identified = identity ? "Proxy-Authorization: " + identity + "\\r\\n" : ""; '

/** CONNECT to the target, and a GET through the tunnel. */
const TUNNEL = `
const proxy = new URL(process.env.https_proxy)
const socket = net.connect(Number(proxy.port), proxy.hostname)
let text = '', asked = false
const print = (value) => { console.log(JSON.stringify(value)); socket.destroy() }
socket.on('error', (error) => print({ status: 0, body: error.code }))
socket.on('connect', () => socket.write('CONNECT ' + args[0] + ' HTTP/1.1\\r\\nHost: ' + args[0] + '\\r\\n' + identified + '\\r\\n'))
socket.on('data', (chunk) => {
  text += chunk
  const end = text.indexOf('\\r\\n\\r\\n')
  if (end < 0) return
  const status = Number(text.split(' ')[1])
  if (status === 200 && !asked) { asked = true; text = ''; socket.write('GET / HTTP/1.0\\r\\n\\r\\n') }
  else if (status !== 200) { const reason = /^x-deny-reason: (.*)$/im.exec(text); print({ status, reason: reason && reason[1], body: text.slice(end + 4) }) }
})
socket.on('end', () => { if (asked) print({ status: Number(text.split(' ')[1]), body: text.slice(text.indexOf('\\r\\n\\r\\n') + 4) }) })`

/** A plain request to the gateway, in absolute form; by an agent of its own, since Node's takes the gateway for one more place to go through the gateway to. */
const PLAIN = `
const proxy = new URL(process.env.http_proxy)
const http = require('node:http')
http.get({ agent: new http.Agent(), host: proxy.hostname, port: proxy.port, path: 'http://' + args[0] + '/', headers: { host: args[0], ...(identity && { 'proxy-authorization': identity }) } }, (response) => {
  let body = ''
  response.on('data', (chunk) => body += chunk)
  response.on('end', () => console.log(JSON.stringify({ status: response.statusCode, reason: response.headers['x-deny-reason'], body })))
}).on('error', (error) => console.log(JSON.stringify({ status: 0, body: error.code })))`

/** To whatever address, since the platform goes by the name: that of the target, whose port is dialled. */
const STRAIGHT = `
const at = args[0].lastIndexOf(':'), name = args[0].slice(0, at), port = Number(args[0].slice(at + 1))
const print = (value) => { console.log(JSON.stringify(value)); process.exit(0) }`

/** A plain request without a proxy, byte by byte; a refusal is a connection that is closed. */
const STRAIGHT_BYTES = `${STRAIGHT}
const socket = net.connect(port, '192.0.2.1')
let text = ''
socket.on('error', (error) => print({ status: 0, body: error.code }))
socket.on('connect', () => socket.write('GET / HTTP/1.0\\r\\nHost: ' + name + '\\r\\n\\r\\n'))
socket.on('data', (chunk) => { text += chunk })
socket.on('end', () => print(text === '' ? { status: 0, body: 'closed' } : { status: Number(text.split(' ')[1]), body: text.slice(text.indexOf('\\r\\n\\r\\n') + 4) }))`

/** The same by Node's own client. */
const STRAIGHT_REQUEST = `${STRAIGHT}
const http = require('node:http')
http.get({ agent: new http.Agent(), host: '192.0.2.1', port, headers: { host: name } }, (response) => {
  let body = ''
  response.on('data', (chunk) => body += chunk)
  response.on('end', () => print({ status: response.statusCode, body }))
}).on('error', (error) => print({ status: 0, body: error.code }))`

/** And one that stays, as `HOLD` does. */
const STRAIGHT_HOLD = `${STRAIGHT}
const socket = net.connect(port, '192.0.2.1')
socket.on('error', () => undefined)
socket.on('connect', () => socket.write('GET / HTTP/1.1\\r\\nHost: ' + name + '\\r\\n\\r\\n'))
socket.once('data', (chunk) => console.log(String(chunk).split(' ')[1] === '200' ? 'open' : 'refused'))
socket.on('close', () => { console.log('cut'); process.exit(0) })`

/** A tunnel that stays: says \`open\`, and \`cut\` when it ends. */
const HOLD = `
const proxy = new URL(process.env.https_proxy)
const socket = net.connect(Number(proxy.port), proxy.hostname)
socket.on('error', () => undefined)
socket.on('connect', () => socket.write('CONNECT ' + args[0] + ' HTTP/1.1\\r\\nHost: ' + args[0] + '\\r\\n' + identified + '\\r\\n'))
socket.once('data', (chunk) => console.log(String(chunk).split(' ')[1] === '200' ? 'open' : 'refused'))
socket.on('close', () => { console.log('cut'); process.exit(0) })`

/** Connections straight to each \`address port\`; prints \`connected\` or the errno of each. */
const DIRECT = `
Promise.all(args.map((target) => new Promise((resolve) => {
  const [host, port] = target.split(' ')
  const socket = net.connect({ host, port: Number(port) })
  const end = (outcome) => { socket.destroy(); resolve(outcome) }
  socket.setTimeout(1500, () => end('timeout'))
  socket.once('connect', () => end('connected'))
  socket.once('error', (error) => end(error.code))
}))).then((outcomes) => console.log(JSON.stringify(outcomes)))`

/** The same where every connection seems to open at first: `connected` is one that answers. */
const DIRECT_ANSWER = `
Promise.all(args.map((target) => new Promise((resolve) => {
  const [host, port] = target.split(' ')
  const socket = net.connect({ host, port: Number(port) })
  const end = (outcome) => { socket.destroy(); resolve(outcome) }
  socket.setTimeout(1500, () => end('timeout'))
  socket.once('connect', () => socket.write('GET / HTTP/1.0\\r\\n\\r\\n'))
  socket.once('data', () => end('connected'))
  socket.once('error', (error) => end(error.code))
  socket.once('close', () => end('closed'))
}))).then((outcomes) => console.log(JSON.stringify(outcomes)))`

/** Whether any resolver of Node's answers for the names. */
const RESOLVE = `
const dns = require('node:dns')
const ask = (method, name) => new Promise((resolve) => {
  const timer = setTimeout(() => resolve('timeout'), 3000)
  dns[method](name, (error, answer) => { clearTimeout(timer); resolve(error ? error.code : 'answered ' + JSON.stringify(answer)) })
})
Promise.all(args.flatMap((name) => ['lookup', 'resolve4', 'resolve6'].map((method) => ask(method, name)))).then((all) => { console.log(JSON.stringify(all)); process.exit(0) })`

/** Command and arguments that run Node inside. */
export function onNode(
  { node }: Pick<ConformanceSubject, 'node'>,
  args: readonly string[],
): [command: string, args: readonly string[]] {
  const [program = 'node', ...first] = node
  return [program, [...first, ...args]]
}

/** Runs a script inside and reads the JSON that it prints. @throws Error with all that it said when it prints none */
export async function runScript<T>(
  { subject }: Bench,
  sandbox: Sandbox,
  script: string,
  args: readonly string[] = [],
): Promise<T> {
  const { stdout, stderr, exitCode } = await sandbox.exec(
    ...onNode(subject, ['-e', WITH_ARGUMENTS + script, ...args]),
    { timeout: 30_000 },
  )
  try {
    return JSON.parse(stdout) as T
  } catch {
    throw new Error(`a client inside ended with ${exitCode} and said \`${stdout}\` and \`${stderr}\``)
  }
}

/** Asks for a tunnel to `host:port`, and what is there; or just what is there, where no proxy is needed. */
export function askTunnel(bench: Bench, sandbox: Sandbox, target: string): Promise<Answer> {
  return runScript(bench, sandbox, isStraight(bench) ? STRAIGHT_BYTES : TUNNEL, [target])
}

/** Asks with a plain request. */
export function askPlain(bench: Bench, sandbox: Sandbox, target: string): Promise<Answer> {
  return runScript(bench, sandbox, isStraight(bench) ? STRAIGHT_REQUEST : PLAIN, [target])
}

function isStraight({ provider }: Bench): boolean {
  return provider.capabilities.transparentEgress === true
}

/** Opens a tunnel and keeps it; resolves once it is open. */
export async function holdTunnel(
  bench: Bench,
  sandbox: Sandbox,
  target: string,
): Promise<{ readonly process: SandboxProcess; readonly cut: Promise<void> }> {
  const script = WITH_ARGUMENTS + (isStraight(bench) ? STRAIGHT_HOLD : HOLD)
  const process = await sandbox.spawn(...onNode(bench.subject, ['-e', script, target]))
  const output = process.output()[Symbol.asyncIterator]()
  let said = ''
  const until = async (word: string): Promise<void> => {
    while (!said.includes(word)) {
      const next = await output.next()
      if (next.done === true) throw new Error(`the client inside said \`${said}\` and ended`)
      said += next.value.data
    }
  }
  await until('open')
  const cut = until('cut')
  // Whoever does not wait for it may destroy the sandbox.
  cut.catch(() => undefined)
  return { process, cut }
}

/** Tries to connect straight to each address and port. */
export function connectDirectly(
  bench: Bench,
  sandbox: Sandbox,
  targets: readonly (readonly [host: string, port: number])[],
): Promise<readonly string[]> {
  return runScript(
    bench,
    sandbox,
    bench.provider.capabilities.opensBeforeDecision === true ? DIRECT_ANSWER : DIRECT,
    targets.map((target) => target.join(' ')),
  )
}

/** Tries to resolve each name in three ways. */
export function resolveNames(bench: Bench, sandbox: Sandbox, names: readonly string[]): Promise<readonly string[]> {
  return runScript(bench, sandbox, RESOLVE, names)
}
