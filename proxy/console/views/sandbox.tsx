/** The story of one sandbox: who it is, what it has open, what it uses, and all that it did, in the order of time. */
import { useEffect, useState } from 'preact/hooks'
import type { IdentityShown } from '../../admin/routes/identities.ts'
import type { TunnelShown } from '../../admin/routes/tunnels.ts'
import type { AuditLine } from '../../audit/schema.ts'
import { ask } from '../api.ts'
import { bytesText, clockText, countText, momentText, spanText } from '../format.ts'
import { detailOf, outcomeOf, targetOf } from '../lines.ts'
import { Action } from '../parts/action.tsx'
import { Choice, TextField } from '../parts/field.tsx'
import { Facts } from '../parts/facts.tsx'
import { type Column, Grid } from '../parts/grid.tsx'
import { LinePanel } from '../parts/line-panel.tsx'
import { Meter } from '../parts/meter.tsx'
import { FaultNotice } from '../parts/notice.tsx'
import { Outside } from '../parts/outside.tsx'
import { useAsked } from '../parts/use-asked.ts'
import { Verdict } from '../parts/verdict.tsx'
import { PERIODS, type Period, periodOf, sinceOf } from '../period.ts'
import { go, place } from '../place.ts'

/** Lines of one answer, and of the whole story in the page. */
const PAGE = 1_000
const MOST = 10_000
const EVERY_MS = 3_000

/** See above. */
export function SandboxView() {
  const { sandbox, tenant } = place.value.of
  return sandbox === undefined ? (
    <Picker />
  ) : (
    <Story key={`${tenant ?? ''}/${sandbox}`} sandbox={sandbox} tenant={tenant} />
  )
}

interface Identities {
  readonly identities: readonly IdentityShown[]
}

function Picker() {
  const [typed, setTyped] = useState('')
  const [tenant, setTenant] = useState('')
  const known = useAsked<Identities>(
    (signal) => ask('GET', '/v1/identities', { query: { limit: 1_000 }, signal }),
    [],
    EVERY_MS,
  )
  const all = (known.value?.identities ?? []).filter((each) => each.sandbox !== undefined)
  return (
    <>
      <header class="view">
        <h1>Sandbox</h1>
        <p class="quiet">Choose one that is connected, or name one that was.</p>
      </header>
      <form
        class="filters"
        aria-label="Sandbox"
        onSubmit={(event) => {
          event.preventDefault()
          go('sandbox', { sandbox: typed, tenant })
        }}
      >
        <TextField label="Sandbox" value={typed} onInput={setTyped} required />
        <TextField label="Tenant" value={tenant} onInput={setTenant} placeholder="any" />
        <Action kind="main" type="submit">
          Show its story
        </Action>
      </form>
      <FaultNotice fault={known.fault} />
      <Grid
        label="Sandboxes that are connected"
        columns={IDENTITY_COLUMNS}
        count={all.length}
        rowAt={(index) => all[index]}
        keyOf={(each) => `${each.issuer} ${each.tenant ?? ''} ${each.sandbox ?? ''}`}
        chosen={undefined}
        onChoose={(each) => go('sandbox', { sandbox: each.sandbox, tenant: each.tenant })}
        empty={known.value === undefined ? 'Asking…' : 'Nobody is connected.'}
      />
    </>
  )
}

const IDENTITY_COLUMNS: readonly Column<IdentityShown>[] = [
  { name: 'Sandbox', width: 'minmax(8rem, 2fr)', cell: ({ sandbox }) => <Outside text={sandbox} /> },
  { name: 'Tenant', width: 'minmax(6rem, 1fr)', cell: ({ tenant }) => <Outside text={tenant} /> },
  { name: 'Issuer', width: 'minmax(8rem, 2fr)', cell: ({ issuer }) => <Outside text={issuer} /> },
  { name: 'Tunnels', width: '5rem', isNumber: true, cell: ({ ofSandbox }) => countText(ofSandbox.tunnels) },
  { name: 'Bytes today', width: '7rem', isNumber: true, cell: ({ ofSandbox }) => bytesText(ofSandbox.bytesToday) },
]

const STORY_COLUMNS: readonly Column<AuditLine>[] = [
  { name: 'Time', width: '7.2rem', cell: ({ time }) => <time dateTime={time}>{clockText(time)}</time> },
  { name: 'What', width: '6.4rem', cell: (line) => <Verdict of={outcomeOf(line)} /> },
  { name: 'Destination', width: 'minmax(10rem, 2fr)', cell: (line) => <Outside text={targetOf(line)} /> },
  { name: 'Why', width: 'minmax(10rem, 3fr)', cell: (line) => <Outside text={detailOf(line)} /> },
  { name: 'Token', width: 'minmax(5rem, 1fr)', cell: ({ token_id: tokenId }) => <Outside text={tokenId} /> },
]

function Story({ sandbox, tenant }: { readonly sandbox: string; readonly tenant: string | undefined }) {
  const period = periodOf(place.value.of['period'])
  const [chosen, setChosen] = useState<AuditLine>()
  const story = useStory(sandbox, tenant, period)
  const identity = useAsked<Identities>(
    (signal) => ask('GET', '/v1/identities', { query: { sandbox, tenant }, signal }),
    [sandbox, tenant],
    EVERY_MS,
  )
  const open = useAsked<{ tunnels: readonly TunnelShown[] }>(
    (signal) => ask('GET', '/v1/tunnels', { query: { sandbox, tenant, limit: 1_000 }, signal }),
    [sandbox, tenant],
    EVERY_MS,
  )
  const known = identity.value?.identities ?? []
  const { lines, more, again } = story
  return (
    <>
      <header class="view">
        <h1>
          Sandbox <Outside text={sandbox} />
        </h1>
        {tenant !== undefined && (
          <span class="quiet">
            of <Outside text={tenant} />
          </span>
        )}
        <Choice<Period>
          label="Period"
          value={period}
          options={PERIODS.map(({ name, text }) => [name, text] as const)}
          onChoose={(next) => go('sandbox', { sandbox, tenant, period: next }, true)}
        />
        <Action onClick={again}>Read again</Action>
        <Action onClick={() => go('decisions', { sandbox, tenant })}>Follow live</Action>
        <Action kind="quiet" onClick={() => go('sandbox')}>
          Another one
        </Action>
      </header>
      <FaultNotice fault={story.fault ?? identity.fault ?? open.fault} />
      <div class="cards">
        <section class="card">
          <h2>Identity</h2>
          <Facts
            of={[
              ['Issuers', <Outside text={distinct(lines, 'issuer').join(', ')} />],
              ['Tokens seen', lastOf(distinct(lines, 'token_id'))],
              ['Clients', <Outside text={shortList(clientsOf(lines))} />],
              ['First seen', lines[0] && momentText(lines[0].time)],
              ['Last seen', lines.at(-1) && momentText(lines.at(-1)?.time ?? '')],
            ]}
          />
        </section>
        <section class="card">
          <h2>Usage now</h2>
          {known.length === 0 && <p class="quiet">It is not connected.</p>}
          {known.map(({ ofSandbox, ofTenant }) => (
            <>
              <Meter label="Tunnels" used={ofSandbox.tunnels} limit={ofSandbox.limits.tunnels} />
              <Meter
                label="Bytes today"
                used={ofSandbox.bytesToday}
                limit={ofSandbox.limits.bytesPerDay}
                text={bytesText}
              />
              {ofTenant && (
                <Meter label="Tunnels of its tenant" used={ofTenant.tunnels} limit={ofTenant.limits.tunnels} />
              )}
              {ofTenant && (
                <Meter
                  label="Bytes of its tenant"
                  used={ofTenant.bytesToday}
                  limit={ofTenant.limits.bytesPerDay}
                  text={bytesText}
                />
              )}
            </>
          ))}
        </section>
        <section class="card">
          <h2>Open tunnels</h2>
          <OpenTunnels of={open.value?.tunnels ?? []} sandbox={sandbox} tenant={tenant} />
        </section>
        <section class="card">
          <h2>In this period</h2>
          <Counted lines={lines} isWhole={more === undefined} />
        </section>
      </div>
      <div class={chosen === undefined ? 'split' : 'split open'}>
        <Grid
          label="What the sandbox did, earliest first"
          columns={STORY_COLUMNS}
          count={lines.length}
          rowAt={(index) => lines[index]}
          keyOf={({ instance, seq }) => `${instance}:${seq}`}
          kindOf={(line) => outcomeOf(line).replace(' ', '-')}
          chosen={chosen && `${chosen.instance}:${chosen.seq}`}
          onChoose={setChosen}
          empty={story.isAsking ? 'Reading the log…' : 'The log has no line of it in this period.'}
        />
        {chosen && <LinePanel line={chosen} onClose={() => setChosen(undefined)} />}
      </div>
      {more && (
        <div class="actions">
          <Action
            onClick={more}
            why={
              lines.length >= MOST
                ? `No more than ${countText(MOST)} lines are shown: choose a shorter period.`
                : undefined
            }
          >
            Read further
          </Action>
        </div>
      )}
    </>
  )
}

function OpenTunnels({
  of,
  sandbox,
  tenant,
}: {
  readonly of: readonly TunnelShown[]
  readonly sandbox: string
  readonly tenant: string | undefined
}) {
  if (of.length === 0) return <p class="quiet">None.</p>
  return (
    <>
      <ul class="plain">
        {of.slice(0, 5).map(({ host, port, bytesIn, bytesOut }) => (
          <li>
            <Outside text={`${host}:${port}`} /> <span class="quiet">{bytesText(bytesIn + bytesOut)}</span>
          </li>
        ))}
      </ul>
      <Action onClick={() => go('tunnels', { sandbox, tenant })}>
        {of.length > 5 ? `All ${of.length}, and cutting them` : 'Details, and cutting them'}
      </Action>
    </>
  )
}

function Counted({ lines, isWhole }: { readonly lines: readonly AuditLine[]; readonly isWhole: boolean }) {
  const counts = { letOut: 0, refused: 0, credentials: 0, bytesIn: 0, bytesOut: 0, openMs: 0 }
  for (const line of lines) {
    if (line.kind === 'decision') counts[line.effective === 'allow' ? 'letOut' : 'refused'] += 1
    if (line.kind === 'auth') counts.credentials += 1
    if (line.kind === 'close') {
      counts.bytesIn += line.bytes_in
      counts.bytesOut += line.bytes_out
      counts.openMs += line.duration_ms
    }
  }
  return (
    <Facts
      of={[
        ['Let out', countText(counts.letOut)],
        ['Refused', countText(counts.refused)],
        ['Credentials refused', counts.credentials > 0 && countText(counts.credentials)],
        ['Bytes of closed tunnels', `${bytesText(counts.bytesIn)} in, ${bytesText(counts.bytesOut)} out`],
        ['Open, all tunnels added up', spanText(counts.openMs)],
        ['Of', isWhole ? 'the whole period' : `the first ${countText(lines.length)} lines`],
      ]}
    />
  )
}

interface StoryState {
  readonly lines: readonly AuditLine[]
  readonly cursor: string | undefined
  readonly fault: unknown
  readonly isAsking: boolean
}

/** Reads page after page when asked to. */
function useStory(sandbox: string, tenant: string | undefined, period: Period) {
  const [state, setState] = useState<StoryState>({ lines: [], cursor: undefined, fault: undefined, isAsking: true })
  const [turn, setTurn] = useState(0)
  const [since, setSince] = useState(() => sinceOf(period))
  const read = async (from: StoryState, since: string, signal?: AbortSignal): Promise<void> => {
    setState({ ...from, isAsking: true, fault: undefined })
    try {
      const query = { sandbox, tenant, since, limit: PAGE, cursor: from.cursor }
      const page = await ask<{ lines: readonly AuditLine[]; cursor?: string }>('GET', '/v1/audit', {
        query,
        ...(signal && { signal }),
      })
      if (signal?.aborted !== true)
        setState({ lines: [...from.lines, ...page.lines], cursor: page.cursor, fault: undefined, isAsking: false })
    } catch (fault) {
      if (signal?.aborted !== true) setState({ ...from, fault, isAsking: false })
    }
  }
  useEffect(() => {
    const controller = new AbortController()
    const start = sinceOf(period)
    setSince(start)
    void read({ lines: [], cursor: undefined, fault: undefined, isAsking: true }, start, controller.signal)
    return () => controller.abort()
  }, [period, turn])
  return {
    ...state,
    again: () => setTurn((before) => before + 1),
    more: state.cursor === undefined ? undefined : () => read(state, since),
  }
}

function distinct(lines: readonly AuditLine[], field: 'issuer' | 'token_id'): readonly string[] {
  return [...new Set(lines.map((line) => line[field]).filter((value) => value !== undefined))]
}

/** Without their ports, which change with every connection. */
function clientsOf(lines: readonly AuditLine[]): readonly string[] {
  const clients = lines.filter(({ kind }) => kind !== 'admin').map(({ client }) => client?.replace(/:\d+$/, ''))
  return [...new Set(clients.filter((client) => client !== undefined))]
}

function lastOf(tokens: readonly string[]) {
  const last = tokens.at(-1)
  if (last === undefined) return undefined
  return (
    <>
      {tokens.length === 1 ? 'one: ' : `${countText(tokens.length)}, at last `}
      <Outside text={last} />
    </>
  )
}

function shortList(all: readonly string[]): string {
  return all.length <= 4 ? all.join(', ') : `${all.slice(0, 4).join(', ')} and ${all.length - 4} more`
}
