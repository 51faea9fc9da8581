/** What is open now, and cutting it. */
import { useState } from 'preact/hooks'
import type { TunnelShown } from '../../admin/routes/tunnels.ts'
import { ask } from '../api.ts'
import { bytesText, countText, momentText, spanText } from '../format.ts'
import { Action } from '../parts/action.tsx'
import { Confirm } from '../parts/dialog.tsx'
import { Facts } from '../parts/facts.tsx'
import { TextField } from '../parts/field.tsx'
import { type Column, Grid } from '../parts/grid.tsx'
import { FaultNotice, Notice } from '../parts/notice.tsx'
import { Outside } from '../parts/outside.tsx'
import { useAsked } from '../parts/use-asked.ts'
import { go, place } from '../place.ts'
import { whyNot } from '../session.ts'

interface Answer {
  readonly open: number
  readonly tunnels: readonly TunnelShown[]
  readonly cursor?: string
}

/** What is to be cut. */
interface Cut {
  readonly what: 'tunnel' | 'sandbox' | 'tenant'
  readonly of: TunnelShown
}

const EVERY_MS = 2_000

const COLUMNS: readonly Column<TunnelShown>[] = [
  { name: 'Tenant', width: 'minmax(5rem, 1fr)', cell: ({ tenant }) => <Outside text={tenant} /> },
  { name: 'Sandbox', width: 'minmax(6rem, 1.2fr)', cell: ({ sandbox }) => <Outside text={sandbox} /> },
  {
    name: 'Destination',
    width: 'minmax(10rem, 2.5fr)',
    cell: ({ host, port }) => <Outside text={`${host}:${port}`} />,
  },
  { name: 'In', width: '5.5rem', isNumber: true, cell: ({ bytesIn }) => bytesText(bytesIn) },
  { name: 'Out', width: '5.5rem', isNumber: true, cell: ({ bytesOut }) => bytesText(bytesOut) },
  { name: 'Idle', width: '5rem', isNumber: true, cell: ({ idleSeconds }) => spanText(idleSeconds * 1_000) },
]

/** See above. */
export function TunnelsView() {
  const { tenant = '', sandbox = '', host = '' } = place.value.of
  const [chosen, setChosen] = useState<string>()
  const [cutting, setCutting] = useState<Cut>()
  const [done, setDone] = useState<string>()
  const [fault, setFault] = useState<unknown>()
  const found = useAsked<Answer>(
    (signal) => ask('GET', '/v1/tunnels', { query: { tenant, sandbox, host, limit: 1_000 }, signal }),
    [tenant, sandbox, host],
    EVERY_MS,
  )
  const tunnels = found.value?.tunnels ?? []
  const one = tunnels.find(({ requestId }) => requestId === chosen)
  const set = (of: Readonly<Record<string, string>>): void => go('tunnels', { ...place.value.of, ...of }, true)

  const cut = async ({ what, of }: Cut): Promise<void> => {
    setCutting(undefined)
    setDone(undefined)
    setFault(undefined)
    try {
      if (what === 'tunnel') {
        await ask('DELETE', `/v1/tunnels/${encodeURIComponent(of.requestId)}`)
        setDone('The tunnel was cut.')
      } else {
        const body =
          what === 'tenant'
            ? { tenant: of.tenant }
            : { sandbox: of.sandbox, ...(of.tenant !== undefined && { tenant: of.tenant }) }
        const { cut: count } = await ask<{ cut: number }>('POST', '/v1/tunnels:cut', { body })
        setDone(`${countText(count)} tunnels were cut.`)
      }
      setChosen(undefined)
    } catch (problem) {
      setFault(problem)
    }
    found.again()
  }

  return (
    <>
      <header class="view">
        <h1>Tunnels</h1>
        <span class="flow quiet">
          {found.value && `${countText(found.value.open)} open in the gateway; ${countText(tunnels.length)} shown`}
          {found.value?.cursor !== undefined && ' (the first thousand: filter to see others)'}
        </span>
      </header>
      <form class="filters" role="search" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
        <TextField label="Tenant" value={tenant} onInput={(next) => set({ tenant: next })} placeholder="exactly" />
        <TextField label="Sandbox" value={sandbox} onInput={(next) => set({ sandbox: next })} placeholder="exactly" />
        <TextField label="Host" value={host} onInput={(next) => set({ host: next })} placeholder="exactly" />
      </form>
      <FaultNotice fault={fault ?? found.fault} />
      {done !== undefined && <Notice kind="good">{done}</Notice>}
      <div class={one === undefined ? 'split' : 'split open'}>
        <Grid
          label="Open tunnels"
          columns={COLUMNS}
          count={tunnels.length}
          rowAt={(index) => tunnels[index]}
          keyOf={({ requestId }) => requestId}
          chosen={chosen}
          onChoose={({ requestId }) => setChosen(requestId)}
          empty={found.isAsking && found.value === undefined ? 'Asking…' : 'No tunnel is open that fits.'}
        />
        {one && (
          <TunnelPanel of={one} onCut={(what) => setCutting({ what, of: one })} onClose={() => setChosen(undefined)} />
        )}
      </div>
      {cutting && (
        <Confirm
          title={cutting.what === 'tunnel' ? 'Cut this tunnel?' : `Cut all tunnels of this ${cutting.what}?`}
          yes={cutting.what === 'tunnel' ? 'Cut it' : 'Cut them'}
          onYes={() => cut(cutting)}
          onNo={() => setCutting(undefined)}
        >
          <Facts
            of={[
              ['Tenant', <Outside text={cutting.of.tenant} />],
              ['Sandbox', cutting.what !== 'tenant' && <Outside text={cutting.of.sandbox} />],
              ['Destination', cutting.what === 'tunnel' && <Outside text={`${cutting.of.host}:${cutting.of.port}`} />],
            ]}
          />
          <p class="quiet">
            Its token stays good, so it may connect again. To keep it out, revoke its token or change the policy.
          </p>
        </Confirm>
      )}
    </>
  )
}

interface PanelProps {
  readonly of: TunnelShown
  readonly onCut: (what: Cut['what']) => void
  readonly onClose: () => void
}

function TunnelPanel({ of, onCut, onClose }: PanelProps) {
  const {
    requestId,
    tenant,
    sandbox,
    tokenId,
    issuer,
    host,
    port,
    addresses,
    expiresAt,
    bytesIn,
    bytesOut,
    idleSeconds,
  } = of
  const why = whyNot('token')
  return (
    <aside class="panel" aria-label="The tunnel that was chosen">
      <header>
        <h2>
          <Outside text={`${host}:${port}`} />
        </h2>
        <Action kind="quiet" onClick={onClose}>
          Close
        </Action>
      </header>
      <div class="actions">
        <Action kind="danger" onClick={() => onCut('tunnel')} why={why}>
          Cut this tunnel…
        </Action>
        {sandbox !== undefined && (
          <Action onClick={() => onCut('sandbox')} why={why} tellsWhy={false}>
            All of the sandbox…
          </Action>
        )}
        {tenant !== undefined && (
          <Action onClick={() => onCut('tenant')} why={why} tellsWhy={false}>
            All of the tenant…
          </Action>
        )}
        {sandbox !== undefined && (
          <Action onClick={() => go('sandbox', { sandbox, tenant })} why={whyNot('read')} tellsWhy={false}>
            Story of the sandbox
          </Action>
        )}
      </div>
      <Facts
        of={[
          ['Tenant', <Outside text={tenant} />],
          ['Sandbox', <Outside text={sandbox} />],
          ['Token', <Outside text={tokenId} />],
          ['Issuer', <Outside text={issuer} />],
          ['Good until', expiresAt === undefined ? 'its listener ends' : momentText(expiresAt)],
          ['Addresses judged', <Outside text={addresses.join(', ')} />],
          ['Bytes in', bytesText(bytesIn)],
          ['Bytes out', bytesText(bytesOut)],
          ['Idle', spanText(idleSeconds * 1_000)],
          ['Request', <Outside text={requestId} />],
        ]}
      />
    </aside>
  )
}
