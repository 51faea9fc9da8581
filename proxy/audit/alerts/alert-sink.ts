/** Posts alerts to a signed webhook. As a sink it keeps its place in the log: what was not told is told after a restart. */
import { DeliveryFault, type Sink } from '../sinks/sink.ts'
import { postSigned, type WebhookTarget } from '../sinks/webhook.ts'
import type { Alert, AlertDetector } from './detector.ts'

/** Alerts that wait for the webhook; beyond, the oldest go, since the lines that raised them are in the log. */
const MAX_WAITING = 1000
/** What is older when it is first seen, such as on the first start with alerts, is history. */
const MAX_AGE_MS = 24 * 3_600_000

/** Each alert is one post, with `webhook-id: alert:<instance>:<seq>:<kind>`. A detector may look at the lines of several logs, each with a sink of its own. */
export function createAlertSink({
  detector,
  webhook,
}: {
  readonly detector: AlertDetector
  readonly webhook: WebhookTarget
}): Sink {
  const waiting: Alert[] = []
  let seenSeq = 0
  return {
    send: async (records, signal) => {
      for (const { line } of records) {
        if (line.seq <= seenSeq) continue
        seenSeq = line.seq
        const alerts = detector.look(line)
        if (Date.now() - Date.parse(line.time) < MAX_AGE_MS) waiting.push(...alerts)
      }
      if (waiting.length > MAX_WAITING) waiting.splice(0, waiting.length - MAX_WAITING)
      for (let alert = waiting[0]; alert !== undefined; alert = waiting[0]) {
        await tell(webhook, alert, signal)
        waiting.shift()
      }
    },
    close: () => undefined,
  }
}

async function tell(webhook: WebhookTarget, alert: Alert, signal: AbortSignal): Promise<void> {
  try {
    const id = `alert:${alert.instance}:${alert.seq}:${alert.kind}`
    await postSigned(webhook, { id, body: JSON.stringify({ type: 'sallyport.alert', ...alert }) }, signal)
  } catch (error) {
    // An alert is never passed over: what refuses it is set up wrongly.
    if (error instanceof DeliveryFault) throw new DeliveryFault(error.message, 'later', error.retryAfterMs)
    throw error
  }
}
