/**
 * Sends lines to a webhook, signed so that the receiver knows from whom and when they come.
 * @see https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
 */
import { createHmac } from 'node:crypto'
import { formatEvent, type EventFormat } from '../formats/format.ts'
import { post } from './post.ts'
import { readSecret } from './secret-file.ts'
import { DeliveryFault, type Sink } from './sink.ts'

/** Where a webhook is, and what it is signed with. */
export interface WebhookTarget {
  readonly url: string
  /** File with the secret: `whsec_` and base64, or at least 32 characters of any other text. */
  readonly secretFile: string
  readonly timeoutMs: number
}

const MIN_SECRET_BYTES = 24
const MIN_SECRET_CHARACTERS = 32

/** The body is `{ "instance", "events": […] }`. The same lines, sent again, have the same `webhook-id`. Nothing is opened before the first are sent. */
export function createWebhookSink(
  settings: WebhookTarget & { readonly format: EventFormat; readonly instance: string },
): Sink {
  const { format, instance } = settings
  return {
    send: async (records, signal) => {
      const [first, last] = [records[0], records.at(-1)]
      if (first === undefined || last === undefined) return
      const events = records.map(({ line, text }) => formatEvent(format, line, text))
      const body = `{"instance":${JSON.stringify(instance)},"events":[${events.join(',')}]}`
      await postSigned(settings, { id: `${instance}:${first.line.seq}-${last.line.seq}`, body }, signal)
    },
    close: () => undefined,
  }
}

/**
 * Posts one message with `webhook-id`, `webhook-timestamp` (seconds) and `webhook-signature`: `v1,` and the HMAC-SHA256 in base64 over `id.timestamp.body`.
 * @throws DeliveryFault
 */
export async function postSigned(
  { url, secretFile, timeoutMs }: WebhookTarget,
  { id, body }: { readonly id: string; readonly body: string },
  signal: AbortSignal,
): Promise<void> {
  const timestamp = String(Math.floor(Date.now() / 1000))
  const signature = createHmac('sha256', keyOf(readSecret(secretFile)))
    .update(`${id}.${timestamp}.${body}`)
    .digest('base64')
  const headers = { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': `v1,${signature}` }
  await post({ url, headers, body, timeoutMs, signal })
}

function keyOf(secret: string): Buffer {
  const isEncoded = secret.startsWith('whsec_')
  const key = isEncoded ? Buffer.from(secret.slice('whsec_'.length), 'base64') : Buffer.from(secret)
  if (key.length < (isEncoded ? MIN_SECRET_BYTES : MIN_SECRET_CHARACTERS))
    throw new DeliveryFault('its secret is too short to sign with')
  return key
}
