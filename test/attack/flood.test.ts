/**
 * A thousand random and mutated heads, SOCKS greetings and ClientHellos a second leave the gateway with the memory it had, answering.
 * `FLOOD_SECONDS` makes it longer than the default.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { freePort } from '../origins/free-port.ts'
import { prepareBench } from '../../bench/prepare.ts'
import { clientHello } from '../integration/client-hello.ts'
import { WireClient } from '../integration/wire.ts'

const SECONDS = Number(process.env['FLOOD_SECONDS'] ?? 10)
const PER_SECOND = 1000
let folder: string
let gateway: ChildProcess
let port: number
let token: string

beforeAll(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-flood-'))
  port = await freePort()
  const { config, tokens } = await prepareBench(folder, { port, tokens: 1, entries: 5 })
  token = fs.readFileSync(tokens, 'utf8').trim()
  gateway = spawn(process.execPath, ['--expose-gc', 'test/attack/flood-process.ts', config], {
    cwd: path.resolve(import.meta.dirname, '../..'),
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  for (let tries = 0; tries < 150 && !(await answers()); tries++)
    await new Promise((resolve) => setTimeout(resolve, 200))
})

afterAll(async () => {
  gateway.kill('SIGTERM')
  await new Promise((resolve) => gateway.once('exit', resolve))
  fs.rmSync(folder, { recursive: true, force: true })
})

test(
  'the memory it had, answering',
  async () => {
    await flood(3)
    const before = await liveKib()
    await flood(SECONDS)
    await new Promise((resolve) => setTimeout(resolve, 1500)) // lingering closes end after a second
    const after = await liveKib()
    expect(gateway.exitCode).toBeNull()
    expect(await answers()).toBe(true)
    expect(openSockets()).toBeLessThan(50)
    expect(after - before, `${before} KiB before, ${after} KiB after`).toBeLessThan(6_000)
  },
  (6 * SECONDS + 120) * 1000,
)

async function flood(seconds: number): Promise<void> {
  const beganMs = performance.now()
  const pending = new Set<Promise<void>>()
  for (let i = 0; i < seconds * PER_SECOND; i++) {
    const sent = attack(mutant(i)).finally(() => pending.delete(sent))
    pending.add(sent)
    const aheadMs = beganMs + (i * 1000) / PER_SECOND - performance.now()
    if (pending.size > 200) await Promise.race(pending)
    else if (aheadMs > 5) await new Promise((resolve) => setTimeout(resolve, aheadMs))
  }
  await Promise.all(pending)
}

/** Sends bytes and waits, for a moment, for whatever comes. */
function attack(bytes: Buffer): Promise<void> {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1', () => socket.write(bytes))
    const timer = setTimeout(() => socket.destroy(), 50)
    socket.on('data', () => undefined)
    socket.on('end', () => socket.destroy())
    socket.on('error', () => undefined)
    socket.on('close', () => {
      clearTimeout(timer)
      resolve()
    })
  })
}

/** What is nearly right is read further than what is random. */
function mutant(seed: number): Buffer {
  const models = [
    Buffer.from(
      `CONNECT host-1.example.test:443 HTTP/1.1\r\nHost: host-1.example.test:443\r\nProxy-Authorization: ${token}\r\n\r\n`,
    ),
    Buffer.from(
      `GET http://host-1.example.test/ HTTP/1.1\r\nHost: a\r\nProxy-Authorization: ${token}\r\nContent-Length: 5\r\n\r\nhello`,
    ),
    Buffer.concat([Buffer.from([5, 1, 2, 1, 4]), crypto.randomBytes(4), Buffer.from([200]), crypto.randomBytes(200)]),
    clientHello({ names: ['host-1.example.test'] }),
    crypto.randomBytes(1 + (seed % 700)),
    Buffer.from(`CONNECT ${crypto.randomBytes(20).toString('latin1')}:443 HTTP/1.1\r\n\r\n`, 'latin1'),
    Buffer.from(
      `POST http://host-1.example.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nProxy-Authorization: ${token.slice(0, -3)}xyz\r\n\r\n`,
    ),
  ]
  const bytes = Buffer.from(models[seed % models.length]!)
  for (let i = 0; i < seed % 4; i++) bytes[crypto.randomInt(bytes.length)] = crypto.randomInt(256)
  return seed % 5 === 0 ? bytes.subarray(0, crypto.randomInt(bytes.length + 1)) : bytes
}

async function answers(): Promise<boolean> {
  try {
    const client = await WireClient.connect({ port, host: '127.0.0.1' })
    client.send('CONNECT host-1.example.test:443 HTTP/1.1\r\nHost: x\r\n\r\n')
    const answer = await client.answer()
    client.destroy()
    return answer?.status === 407
  } catch {
    return false
  }
}

/** What is held after a collection: the resident size also counts what the allocator keeps for later. */
function liveKib(): Promise<number> {
  return new Promise((resolve) => {
    gateway.stdout?.once('data', (chunk: Buffer) => resolve(Number(chunk.toString())))
    gateway.kill('SIGUSR2')
  })
}

function openSockets(): number {
  return fs.readdirSync(`/proc/${gateway.pid!}/fd`).length
}
