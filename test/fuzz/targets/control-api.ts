/** Bodies of the control API, sent by somebody who may do everything. */
import http from 'node:http'
import { mintAdminToken } from '../../../proxy/tokens/admin-token.ts'
import { openKeys } from '../../../proxy/tokens/keys.ts'
import { startTestGateway } from '../../integration/test-gateway.ts'
import { hold, type Target } from '../target.ts'

interface Operation {
  readonly operationId: string
  readonly requestBody?: object
  readonly responses: Readonly<Record<string, unknown>>
}

/** What would end the gateway, or change how it is reached. */
const NOT_CALLED = ['drain']
const WORDS = [
  ...[
    'null',
    'true',
    '[]',
    '{}',
    '""',
    '"a"',
    '0',
    '-1',
    '1e400',
    '1.5',
    '9007199254740993',
    '\\u0000',
    '\\ud800',
    '"__proto__":{}',
    '"constructor":{}',
  ],
  ...[
    '"kind":"static"',
    '"allowedHosts":["*.example.com"]',
    '"kind":"named","name":"x"',
    '"tenant":"acme"',
    '"sandbox":"s"',
    '"lifeSeconds":60',
    '"egress":',
  ],
  ...[
    '"host":"a.example"',
    '"port":443',
    '"addresses":["8.8.8.8"]',
    '"tokenId":"t"',
    '"reason":"x"',
    '[',
    ']',
    '{',
    '}',
    ',',
    ':',
    '"',
  ],
]

/** Opens the target. The first byte of an input chooses the operation, the rest is the body. */
export async function controlApi(): Promise<Target> {
  const gateway = await startTestGateway({ issuers: [{ issuer: 'urn:own', algorithms: ['ES256'], stateKeys: true }] })
  const keys = await openKeys(gateway.config({}).state)
  await keys.rotate()
  const key = await keys.signingKey()
  if (key === undefined) throw new Error('no key')
  const { token } = await mintAdminToken({ key, scopes: ['admin'], lifeSeconds: 86_400 })
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
  const call = (method: string, route: string, body?: Buffer) =>
    new Promise<{ readonly status: number; readonly text: string }>((resolve, reject) => {
      const headers = {
        authorization: `Bearer ${token}`,
        ...(body && { 'content-type': 'application/json', 'content-length': body.length }),
      }
      const request = http.request(
        { agent, host: '127.0.0.1', port: gateway.adminPort, method, path: route, headers },
        (response) => {
          const chunks: Buffer[] = []
          response.on('data', (chunk: Buffer) => chunks.push(chunk))
          response.on('end', () =>
            resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString('utf8') }),
          )
          response.on('error', reject)
        },
      )
      request.on('error', reject)
      request.end(body)
    })
  const document = JSON.parse((await call('GET', '/openapi.json')).text) as {
    readonly paths: Record<string, Record<string, Operation>>
  }
  const operations = Object.entries(document.paths)
    .flatMap(([route, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({ route, method: method.toUpperCase(), operation })),
    )
    .filter(
      ({ operation }) =>
        operation.requestBody !== undefined &&
        !NOT_CALLED.some((name) => operation.operationId.toLowerCase().includes(name)),
    )
  return {
    name: 'control-api',
    maxBytes: 16 * 1024,
    maxCpuMs: 3000,
    seeds: operations.flatMap((_operation, index) =>
      [
        '{}',
        '{"destination":"api.example.com:443","host":"api.example.com","port":443,"tenant":"acme","addresses":["8.8.8.8"]}',
        '{"policy":{"kind":"static","allowedHosts":["*.example.com"]},"kind":"static","allowedHosts":["*.example.com"]}',
        '{"tenant":"acme","sandbox":"s","lifeSeconds":60,"egress":{"kind":"allow-all"}}',
        '{"tokenId":"t","reason":"x"}',
      ].map((body) => Buffer.from(String.fromCharCode(index) + body, 'latin1')),
    ),
    words: WORDS,
    run: async (input) => {
      const { route, method, operation } = operations[(input[0] ?? 0) % operations.length]!
      const { status, text } = await call(method, route.replace(/\{[a-zA-Z]+\}/g, 'acme'), input.subarray(1))
      const known = `${method} ${route} ${status}`
      hold(status < 500, `${known}: a fault of the gateway`, () => text)
      hold(
        Object.hasOwn(operation.responses, String(status)),
        `${known}: the document does not know this answer`,
        () => text,
      )
      const answer = text === '' ? undefined : (JSON.parse(text) as Record<string, unknown>)
      if (status >= 400)
        hold(
          typeof answer?.['error'] === 'string' && text.length < 32_768,
          `${known}: a refusal says not why`,
          () => text,
        )
      // What an operator reads may be shown in a terminal.
      hold(!/[\0-\x1f\x7f]/.test(text.replace(/[\n\t]/g, '')), `${known}: control characters in an answer`, () => text)
    },
    close: async () => {
      agent.destroy()
      await gateway.close()
    },
  }
}
