/** Which hosts are refused most, and when; whose sandboxes ask for them; and from there to a permission. */
import { useState } from 'preact/hooks'
import type { SummaryShown } from '../../admin/routes/audit.ts'
import { ask } from '../api.ts'
import { countText, momentText } from '../format.ts'
import { Action } from '../parts/action.tsx'
import { Chart, COLOURS } from '../parts/chart.tsx'
import { Choice, TextField } from '../parts/field.tsx'
import { FaultNotice } from '../parts/notice.tsx'
import { Outside } from '../parts/outside.tsx'
import { useAsked } from '../parts/use-asked.ts'
import { PERIODS, type Period, periodNamed, periodOf, sinceOf } from '../period.ts'
import { go, place } from '../place.ts'
import { whyNot } from '../session.ts'

const TOP = 25

/** See above. */
export function RefusedView() {
  const { tenant = '' } = place.value.of
  const period = periodOf(place.value.of['period'])
  const [typed, setTyped] = useState(tenant)
  const [chosen, setChosen] = useState<string>()
  const summary = useAsked<SummaryShown>(
    (signal) =>
      ask('GET', '/v1/audit/summary', {
        query: { since: sinceOf(period), tenant, top: TOP, buckets: periodNamed(period).buckets },
        signal,
      }),
    [period, tenant],
  )
  const set = (of: Readonly<Record<string, string>>): void => go('refused', { ...place.value.of, ...of }, true)
  const { value } = summary
  return (
    <>
      <header class="view">
        <h1>Refused hosts</h1>
        <form
          class="filters"
          role="search"
          aria-label="Period and tenant"
          onSubmit={(event) => {
            event.preventDefault()
            set({ tenant: typed })
          }}
        >
          <Choice<Period>
            label="Period"
            value={period}
            options={PERIODS.map(({ name, text }) => [name, text] as const)}
            onChoose={(next) => set({ period: next })}
          />
          <TextField label="Tenant" value={typed} onInput={setTyped} placeholder="all" />
          <Action type="submit">Show</Action>
          <Action onClick={summary.again} why={summary.isAsking ? 'Reading the log…' : undefined} tellsWhy={false}>
            Read again
          </Action>
        </form>
      </header>
      <FaultNotice fault={summary.fault} />
      {value === undefined ? (
        <p class="quiet" role="status">
          {summary.fault === undefined ? 'Reading the log…' : ''}
        </p>
      ) : (
        <Shown
          of={value}
          chosen={chosen}
          onChoose={(host) => setChosen(host === chosen ? undefined : host)}
          tenant={tenant}
          period={period}
        />
      )}
    </>
  )
}

interface ShownProps {
  readonly of: SummaryShown
  readonly chosen: string | undefined
  readonly onChoose: (host: string) => void
  readonly tenant: string
  readonly period: Period
}

function Shown({ of, chosen, onChoose, tenant, period }: ShownProps) {
  const { refused, allowed, reported, credentialsRefused, refusedHosts, reasons, series = [], exact, since, until } = of
  const names = refusedHosts.slice(0, COLOURS).map(({ name }) => name)
  return (
    <>
      <ul class="figures" aria-label="In the whole period">
        <Figure of={refused} name="refused" kind="bad" />
        <Figure of={allowed} name="let out" kind="good" />
        <Figure of={reported} name="reported only" kind="warn" />
        <Figure of={credentialsRefused} name="credentials refused" kind="bad" />
      </ul>
      <section class="card">
        <Chart
          label={`Refusals from ${momentText(since)} to ${momentText(until)}, stacked by host`}
          until={until}
          series={series}
          names={names}
          chosen={chosen}
        />
      </section>
      {!exact && (
        <p class="notice warn">
          There were more hosts than are counted apart: the ranking may lack some that are seldom asked for.
        </p>
      )}
      <div class="columns">
        <section class="card">
          <table class="ranking">
            <caption>Hosts, the most refused first</caption>
            <thead>
              <tr>
                <th scope="col" class="number">
                  Rank
                </th>
                <th scope="col">Host</th>
                <th scope="col" class="number">
                  Refused
                </th>
                <th scope="col">Over time</th>
                <th scope="col">
                  <span class="unheard">Who asks for it</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {refusedHosts.map(({ name, count }, rank) => (
                <tr class={name === chosen ? 'chosen' : ''}>
                  <td class="number">{rank + 1}</td>
                  <th scope="row">
                    <span class={`key colour-${Math.min(rank, COLOURS)}`} /> <Outside text={name} />
                  </th>
                  <td class="number">{countText(count)}</td>
                  <td>
                    <Spark of={series.map(({ hosts }) => hosts[rank] ?? 0)} />
                  </td>
                  <td>
                    <Action pressed={name === chosen} onClick={() => onChoose(name)}>
                      Who?
                    </Action>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {refusedHosts.length === 0 && <p class="empty">Nothing was refused in this period.</p>}
        </section>
        <div>
          {chosen !== undefined && <Who host={chosen} tenant={tenant} period={period} />}
          <section class="card">
            <table>
              <caption>Reasons</caption>
              <tbody>
                {reasons.map(({ name, count }) => (
                  <tr>
                    <th scope="row">
                      <code>{name}</code>
                    </th>
                    <td class="number">{countText(count)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
        </div>
      </div>
    </>
  )
}

function Figure({ of, name, kind }: { readonly of: number; readonly name: string; readonly kind: string }) {
  return (
    <li class={`figure ${kind}`}>
      <strong>{countText(of)}</strong> {name}
    </li>
  )
}

/** Not for reading: its numbers are in the chart. */
function Spark({ of }: { readonly of: readonly number[] }) {
  const most = Math.max(1, ...of)
  return (
    <svg class="spark" viewBox={`0 0 ${of.length} 10`} preserveAspectRatio="none" aria-hidden="true">
      {of.map((count, at) => (
        <rect x={at} width={0.8} y={10 - (count / most) * 10} height={(count / most) * 10} />
      ))}
    </svg>
  )
}

/** The tenants whose sandboxes were refused a host. */
function Who({ host, tenant, period }: { readonly host: string; readonly tenant: string; readonly period: Period }) {
  const found = useAsked<SummaryShown>(
    (signal) => ask('GET', '/v1/audit/summary', { query: { since: sinceOf(period), host, tenant, top: TOP }, signal }),
    [host, tenant, period],
  )
  return (
    <section class="card" aria-label="Who asks for the host" aria-live="polite">
      <h2>
        <Outside text={host} />
      </h2>
      <FaultNotice fault={found.fault} />
      {found.value === undefined && found.fault === undefined && <p class="quiet">Reading the log…</p>}
      {found.value && (
        <>
          <p class="quiet">{found.value.reasons.map(({ name, count }) => `${name}: ${countText(count)}`).join('; ')}</p>
          <ul class="plain">
            {found.value.refusedTenants.map(({ name, count }) => (
              <li class="line">
                <span>
                  <Outside text={name} /> <span class="quiet">{countText(count)}</span>
                </span>
                <Action onClick={() => go('allow', { tenant: name, host })} why={whyNot('read', 'policy')}>
                  Allow for it…
                </Action>
              </li>
            ))}
          </ul>
          {found.value.refusedTenants.length === 0 && (
            <p class="quiet">Tokens without a tenant: what they may is in the token and the ceiling.</p>
          )}
          <Action onClick={() => go('decisions', { host, outcome: 'refused' })}>Follow live</Action>
        </>
      )}
    </section>
  )
}
