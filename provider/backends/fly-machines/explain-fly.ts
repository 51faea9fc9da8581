/** What Fly's refusals mean, and what to do about each. */
import type { Refusal, RefusalMeaning } from '../platform/refusal.ts'

/** Undefined leaves it at what the status says. */
export function explainFly(app: string): (refusal: Refusal) => RefusalMeaning | undefined {
  return ({ status, code, message }) => {
    if (status === 401 || status === 403)
      return { fault: 'credentials_refused', advice: `\`fly tokens create deploy --app ${app}\` makes a token` }
    if (code === 'name_taken') return { fault: 'name_taken', advice: 'another machine of the app has this name' }
    if (code === 'insufficient_capacity' || code === 'volume_placement_capacity' || /insufficient (resources|capacity)|no capacity/i.test(message)) return { fault: 'capacity_exhausted', advice: 'the region is full: try later, or another `region`' } // prettier-ignore
    if (status === 429) return { fault: 'rate_limited' }
    if (status >= 500) return undefined
    if (/region/i.test(message))
      return {
        fault: 'region_unavailable',
        advice: 'name another `region`, or none; `fly platform regions` lists them',
      }
    if (/quota|limit (?:of|reached|exceeded)|reached its|too many machines|trial|billing|payment/i.test(message))
      return { fault: 'quota_exhausted', advice: 'end machines that are not needed, or ask Fly for a higher limit' }
    if (/image|manifest|registry/i.test(message))
      return {
        fault: 'image_unusable',
        advice: 'build and push it as deploy/fly/README.md says, and give its whole name',
      }
    if (status === 404 && /machine/i.test(message)) return { fault: 'not_found', advice: 'the machine is gone' }
    if (status === 404)
      return { fault: 'not_found', advice: `is there an app \`${app}\` (\`fly apps list\`), and is the token for it?` }
    return undefined
  }
}
