/** How the gateway is: whether it takes connections, what it dropped, and how close it and its users are to their limits. */
import type { IdentityShown } from '../../admin/routes/identities.ts'
import type { StatusShown } from '../../admin/routes/status.ts'
import { ask, open } from '../api.ts'
import { bytesText, countText, momentText, spanText } from '../format.ts'
import { type Metrics, parseMetrics, sumOf } from '../metrics-text.ts'
import { Facts } from '../parts/facts.tsx'
import { Meter } from '../parts/meter.tsx'
import { FaultNotice } from '../parts/notice.tsx'
import { Outside } from '../parts/outside.tsx'
import { useAsked } from '../parts/use-asked.ts'

const STATUS_MS = 3_000
const METRICS_MS = 10_000
/** Users that are shown. */
const MOST_USED = 10

/** Refusals for which nobody is to blame but a limit or the gateway itself. */
const DROPS = [
  ['gateway_busy', 'gateway was full'],
  ['tunnel_limit', 'too many tunnels'],
  ['rate_limit', 'too many new ones'],
  ['byte_quota', 'bytes of the day used up'],
  ['audit_unavailable', 'not to be written down'],
  ['policy_unavailable', 'no policy to be had'],
  ['draining', 'gateway was stopping'],
] as const

/** See above. */
export function HealthView() {
  const status = useAsked<StatusShown>((signal) => ask('GET', '/v1/status', { signal }), [], STATUS_MS)
  const metrics = useAsked<Metrics>(
    async (signal) => parseMetrics(await (await open('GET', '/metrics', { signal })).text()),
    [],
    METRICS_MS,
  )
  const users = useAsked<{ identities: readonly IdentityShown[] }>(
    (signal) => ask('GET', '/v1/identities', { query: { limit: 1_000 }, signal }),
    [],
    STATUS_MS,
  )
  return (
    <>
      <header class="view">
        <h1>Health and limits</h1>
      </header>
      <FaultNotice fault={status.fault ?? metrics.fault ?? users.fault} />
      <div class="cards">
        {status.value && <Ready of={status.value} metrics={metrics.value} />}
        {status.value && <Limits of={status.value} />}
        {metrics.value && <Connections of={metrics.value} />}
        {metrics.value && status.value && <Drops of={metrics.value} status={status.value} />}
      </div>
      {users.value && <Users of={users.value.identities} />}
    </>
  )
}

function Ready({ of, metrics }: { readonly of: StatusShown; readonly metrics: Metrics | undefined }) {
  return (
    <section class="card">
      <h2>Gateway</h2>
      <p>
        {of.ready ? (
          <span class="chip good large">takes connections</span>
        ) : (
          <span class="chip bad large">not ready</span>
        )}
      </p>
      <Facts
        of={[
          ['Why not', of.reasons.length > 0 && of.reasons.join(', ')],
          ['Version', <code>{of.version}</code>],
          ['Instance', <Outside text={of.instance} />],
          [
            'Runs since',
            `${momentText(of.startedAt)}, for ${spanText(Math.max(0, Date.now() - Date.parse(of.startedAt)))}`,
          ],
          ['Policy version', <code>{of.policyVersion}</code>],
          ...(metrics === undefined ? [] : processFacts(metrics)),
        ]}
      />
    </section>
  )
}

function processFacts(of: Metrics) {
  return [
    ['Memory', bytesText(sumOf(of, 'sallyport_process_resident_memory_bytes'))],
    ['Heap in use', bytesText(sumOf(of, 'sallyport_process_heap_used_bytes'))],
    ['Loop delay, p99', spanText(sumOf(of, 'sallyport_process_eventloop_delay_p99_seconds') * 1_000)],
    ['CPU time', spanText(sumOf(of, 'sallyport_process_cpu_seconds') * 1_000)],
    ['Descriptors', countText(sumOf(of, 'sallyport_process_open_fds'))],
  ] as const
}

function Connections({ of }: { readonly of: Metrics }) {
  const name = 'sallyport_connections_total'
  return (
    <section class="card">
      <h2>Since the start</h2>
      <Facts
        of={[
          ['Let out', countText(sumOf(of, name, ({ decision }) => decision === 'allow'))],
          ['Refused', countText(sumOf(of, name, ({ decision }) => decision === 'deny'))],
          ['Closed before a byte', countText(sumOf(of, 'sallyport_empty_connections_total'))],
          ['Bytes in', bytesText(sumOf(of, 'sallyport_bytes_total', ({ direction }) => direction === 'in'))],
          ['Bytes out', bytesText(sumOf(of, 'sallyport_bytes_total', ({ direction }) => direction === 'out'))],
          ['Audit lines', countText(sumOf(of, 'sallyport_audit_lines_total'))],
        ]}
      />
    </section>
  )
}

function Drops({ of, status }: { readonly of: Metrics; readonly status: StatusShown }) {
  const lost = sumOf(of, 'sallyport_audit_lost_total')
  const { sinks } = status.audit
  const total = (field: 'refused' | 'missing'): number => sinks.reduce((sum, sink) => sum + sink[field], 0)
  return (
    <section class="card">
      <h2>Drops since the start</h2>
      <table>
        <caption class="unheard">What was dropped</caption>
        <tbody>
          <Drop name="audit lines lost for good" count={lost} />
          <Drop name="lines that a sink refused" count={total('refused')} />
          <Drop name="lines gone before a sink took them" count={total('missing')} />
          {DROPS.map(([reason, name]) => (
            <Drop
              name={`refused: ${name}`}
              count={sumOf(of, 'sallyport_connections_total', (labels) => labels['reason'] === reason)}
            />
          ))}
        </tbody>
      </table>
    </section>
  )
}

function Drop({ name, count }: { readonly name: string; readonly count: number }) {
  return (
    <tr>
      <th scope="row">{name}</th>
      <td class={count > 0 ? 'number bad' : 'number quiet'}>{countText(count)}</td>
    </tr>
  )
}

function Limits({ of: { tunnels, limits } }: { readonly of: StatusShown }) {
  const rows = [
    ['Open tunnels', 'tunnels', countText],
    ['New ones in a second', 'newPerSecond', countText],
    ['Bytes in a day', 'bytesPerDay', bytesText],
  ] as const
  return (
    <section class="card">
      <h2>Limits</h2>
      <Meter label="Tunnels of the gateway" used={tunnels.open} limit={tunnels.limit} />
      <table>
        <caption class="unheard">Limits of each sandbox and each tenant</caption>
        <thead>
          <tr>
            <td />
            <th scope="col" class="number">
              Each sandbox
            </th>
            <th scope="col" class="number">
              Each tenant
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, limit, text]) => (
            <tr>
              <th scope="row">{name}</th>
              {[limits.perSandbox[limit], limits.perTenant[limit]].map((value) => (
                <td class="number">{value === undefined ? 'no limit' : text(value)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

function Users({ of }: { readonly of: readonly IdentityShown[] }) {
  const most = [...of].sort((one, other) => closeness(other) - closeness(one)).slice(0, MOST_USED)
  return (
    <section class="card">
      <h2>Closest to their limits</h2>
      {most.length === 0 && <p class="empty">Nobody is connected.</p>}
      <ul class="plain users">
        {most.map(({ sandbox, tenant, tokenIds, ofSandbox }) => (
          <li>
            <span class="who">
              <Outside text={sandbox ?? `token ${tokenIds[0] ?? ''}`} />
              {tenant !== undefined && (
                <span class="quiet">
                  {' of '}
                  <Outside text={tenant} />
                </span>
              )}
            </span>
            <Meter label="tunnels" used={ofSandbox.tunnels} limit={ofSandbox.limits.tunnels} />
            <Meter
              label="bytes today"
              used={ofSandbox.bytesToday}
              limit={ofSandbox.limits.bytesPerDay}
              text={bytesText}
            />
          </li>
        ))}
      </ul>
    </section>
  )
}

/** The largest part that is used of any of its limits. */
function closeness({ ofSandbox: { tunnels, bytesToday, limits } }: IdentityShown): number {
  return Math.max(tunnels / (limits.tunnels ?? Infinity), bytesToday / (limits.bytesPerDay ?? Infinity))
}
