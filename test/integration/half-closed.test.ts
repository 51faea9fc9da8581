/** A client that ends behind its request, as `printf … | nc` does, is told what the gateway itself has to say, and keeps its tunnel. */
import net from 'node:net'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Origin, startEcho } from '../origins/origins.ts'
import { startTestGateway, type TestGateway } from './test-gateway.ts'

const HOST = '127.66.0.10'
let gateway: TestGateway
let token: string
let echo: Origin

beforeAll(async () => {
  echo = await startEcho(HOST)
  gateway = await startTestGateway({
    policy: {
      ceiling: {
        kind: 'static',
        allowedHosts: [`origin.example.test:${echo.port}`],
      },
    },
    network: { allowPrivate: ['127.66.0.0/24'], hosts: { 'origin.example.test': HOST } },
  })
  token = await gateway.token({
    egress: {
      kind: 'static',
      allowedHosts: [`origin.example.test:${echo.port}`],
    },
  })
})
afterAll(async () => {
  await gateway.close()
  await echo.close()
})

/** What comes back for what is sent with the end right behind it. */
function answerTo(text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    net
      .connect({ port: gateway.port, host: '127.0.0.1', allowHalfOpen: true })
      .on('data', (chunk) => chunks.push(chunk))
      .on('end', function (this: net.Socket) {
        this.destroy()
        resolve(Buffer.concat(chunks).toString('latin1'))
      })
      .on('error', reject)
      .end(text)
  })
}

const authorized = () => `Proxy-Authorization: Bearer ${token}\r\n`

describe('a client that ends behind its request', () => {
  test.each(['/healthz', 'http://other.example.test/'])('is told why `GET %s` is refused', async (target) => {
    const answer = await answerTo(`GET ${target} HTTP/1.1\r\nHost: x\r\n${authorized()}\r\n`)
    expect(answer).toMatch(/^HTTP\/1\.1 40[03] /)
  })

  test('is told why a CONNECT is refused', async () => {
    const answer = await answerTo(`CONNECT other.example.test:443 HTTP/1.1\r\nHost: x\r\n${authorized()}\r\n`)
    expect(answer).toMatch(/^HTTP\/1\.1 403 /)
  })

  test('gets what comes back through a tunnel', async () => {
    const target = `origin.example.test:${echo.port}`
    const answer = await answerTo(`CONNECT ${target} HTTP/1.1\r\nHost: x\r\n${authorized()}\r\nhello`)
    expect(answer).toMatch(/^HTTP\/1\.1 200 [^]*\r\n\r\nhello$/)
  })
})
