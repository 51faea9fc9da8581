/** A collector of traces on loopback that takes nothing but OTLP in JSON as its definition has it. @see https://github.com/open-telemetry/opentelemetry-proto/blob/main/docs/specification.md */
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { z } from 'zod'

/** 64-bit numbers are decimal text in the JSON of protobuf. */
const unsigned = z.string().regex(/^(?:0|[1-9]\d{0,19})$/)
const keyValue = z.strictObject({
  key: z.string().min(1),
  value: z.union([
    z.strictObject({ stringValue: z.string() }),
    z.strictObject({ intValue: z.string().regex(/^-?\d{1,19}$/) }),
    z.strictObject({ doubleValue: z.number() }),
    z.strictObject({
      arrayValue: z.strictObject({ values: z.array(z.strictObject({ stringValue: z.string() })) }),
    }),
  ]),
})
const spanId = z.string().regex(/^(?!0{16})[0-9a-f]{16}$/)
const span = z
  .strictObject({
    traceId: z.string().regex(/^(?!0{32})[0-9a-f]{32}$/),
    spanId,
    parentSpanId: spanId.optional(),
    flags: z.int().min(0).max(0xffff_ffff),
    name: z.string().min(1),
    kind: z.int().min(1).max(5),
    startTimeUnixNano: unsigned,
    endTimeUnixNano: unsigned,
    attributes: z.array(keyValue),
    status: z.strictObject({ code: z.int().min(0).max(2).optional(), message: z.string().optional() }),
  })
  .refine(({ startTimeUnixNano, endTimeUnixNano }) => BigInt(startTimeUnixNano) <= BigInt(endTimeUnixNano))
  .refine(({ attributes }) => new Set(attributes.map(({ key }) => key)).size === attributes.length)
const body = z.strictObject({
  resourceSpans: z
    .array(
      z.strictObject({
        resource: z.strictObject({ attributes: z.array(keyValue) }),
        scopeSpans: z
          .array(z.strictObject({ scope: z.strictObject({ name: z.string().min(1) }), spans: z.array(span).min(1) }))
          .min(1),
      }),
    )
    .min(1),
})

export type OtlpSpan = z.infer<typeof span>

export interface Collector {
  readonly url: string
  readonly spans: OtlpSpan[]
  readonly requests: { readonly headers: http.IncomingHttpHeaders; readonly body: string }[]
  /** What was wrong with requests; they were answered with 400. */
  readonly faults: string[]
  close(): Promise<void>
}

/** Takes spans until it is closed. */
export async function startCollector(): Promise<Collector> {
  const spans: OtlpSpan[] = []
  const requests: Collector['requests'] = []
  const faults: string[] = []
  const server = http.createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString()
      requests.push({ headers: request.headers, body: text })
      const isRight =
        request.method === 'POST' &&
        request.url === '/v1/traces' &&
        request.headers['content-type'] === 'application/json'
      const parsed = body.safeParse(JSON.parse(text))
      if (!isRight || !parsed.success) {
        faults.push(parsed.error?.message ?? `${request.method ?? ''} ${request.url ?? ''}`)
        response.writeHead(400).end()
        return
      }
      spans.push(...parsed.data.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)))
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"partialSuccess":{}}')
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/traces`,
    spans,
    requests,
    faults,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

/** An attribute as text, whatever its type. */
export function attribute({ attributes }: OtlpSpan, key: string): string | undefined {
  const value = attributes.find((one) => one.key === key)?.value
  if (value === undefined) return undefined
  if ('stringValue' in value) return value.stringValue
  if ('intValue' in value) return value.intValue
  if ('doubleValue' in value) return String(value.doubleValue)
  return value.arrayValue.values.map(({ stringValue }) => stringValue).join()
}
