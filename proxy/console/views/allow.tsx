/** Allows a host for a tenant: shows what the policy becomes and what that would do, then does it. Somebody who was faster is noticed, and what they did is read. */
import { useEffect, useState } from 'preact/hooks'
import type { ExplanationShown } from '../../admin/routes/explain.ts'
import type { ChangeShown, DryRunShown, PolicyShown } from '../../admin/routes/policies.ts'
import { entryFor, withEntry } from '../allow.ts'
import { ApiFault, ask } from '../api.ts'
import { countText } from '../format.ts'
import { Action } from '../parts/action.tsx'
import { Facts } from '../parts/facts.tsx'
import { TextField } from '../parts/field.tsx'
import { FaultNotice, Notice } from '../parts/notice.tsx'
import { Outside } from '../parts/outside.tsx'
import { go, place } from '../place.ts'
import { whyNot } from '../session.ts'

/** What was read, and what would become of it. */
interface Plan {
  readonly tenant: string
  readonly entry: string
  readonly before: PolicyShown | undefined
  readonly next: PolicyShown['policy']
  readonly dryRun: DryRunShown
  readonly elsewhere: ExplanationShown | undefined
}

interface Outcome {
  readonly change: ChangeShown
  readonly after: ExplanationShown | undefined
}

/** See above. */
export function AllowView() {
  const { of } = place.value
  const [tenant, setTenant] = useState(of['tenant'] ?? '')
  const [entry, setEntry] = useState(of['host'] === undefined ? '' : entryFor(of['host'], Number(of['port'] ?? 443)))
  const [plan, setPlan] = useState<Plan>()
  const [outcome, setOutcome] = useState<Outcome>()
  const [fault, setFault] = useState<unknown>()
  const [obstacle, setObstacle] = useState<string>()
  const [isAsking, setAsking] = useState(false)

  const typed = (set: (text: string) => void) => (text: string) => {
    set(text)
    setPlan(undefined)
  }
  const look = async (): Promise<void> => {
    setOutcome(undefined)
    setObstacle(undefined)
    setFault(undefined)
    setAsking(true)
    try {
      const made = await makePlan(tenant.trim(), entry.trim())
      if ('why' in made) setObstacle(made.why)
      setPlan('why' in made ? undefined : made)
    } catch (problem) {
      setPlan(undefined)
      setFault(problem)
    } finally {
      setAsking(false)
    }
  }
  const apply = async (made: Plan): Promise<void> => {
    setFault(undefined)
    setAsking(true)
    try {
      const body = { policy: made.next, replaces: made.before?.version ?? null }
      const change = await ask<ChangeShown>('PUT', `/v1/policies/${encodeURIComponent(made.tenant)}`, { body })
      setOutcome({ change, after: await explained(made.tenant, made.entry) })
      setPlan(undefined)
    } catch (problem) {
      setFault(problem)
    } finally {
      setAsking(false)
    }
  }
  useEffect(() => {
    if (tenant !== '' && entry !== '') void look()
  }, [])

  const isStale = fault instanceof ApiFault && fault.code === 'version_stale'
  return (
    <>
      <header class="view">
        <h1>Allow a host</h1>
        <p class="quiet">Adds one entry to the policy of one tenant. The ceiling and the token still have their say.</p>
      </header>
      <form
        class="filters"
        aria-label="What to allow"
        onSubmit={(event) => {
          event.preventDefault()
          void look()
        }}
      >
        <TextField label="Tenant" value={tenant} onInput={typed(setTenant)} required />
        <TextField
          label="Entry"
          value={entry}
          onInput={typed(setEntry)}
          required
          wide
          placeholder="api.example.com, *.example.com, host:8443"
        />
        <Action
          kind={plan === undefined ? 'main' : 'plain'}
          type="submit"
          why={isAsking ? 'Asking the gateway…' : undefined}
          tellsWhy={false}
        >
          Show what would change
        </Action>
      </form>
      {of['layer'] !== undefined && of['layer'] !== 'tenant' && (
        <Notice kind="warn">
          <p>
            The refusal came from the {of['layer'] === 'claim' ? 'claim of the token' : 'ceiling of the operator'}.
            Allowing it for the tenant lets it out only once that layer allows it too.
          </p>
        </Notice>
      )}
      {isStale ? (
        <Notice kind="warn">
          <p>
            <strong>Somebody changed this policy meanwhile.</strong> <Outside text={fault.message} />. Nothing was
            applied. Read it again and look at the difference anew.
          </p>
          <Action kind="main" onClick={look}>
            Read it again
          </Action>
        </Notice>
      ) : (
        <FaultNotice fault={fault} />
      )}
      {obstacle !== undefined && (
        <Notice kind="plain">
          <Outside text={obstacle} />
        </Notice>
      )}
      {plan && !isStale && <PlanCard of={plan} isAsking={isAsking} onApply={() => apply(plan)} />}
      {outcome && <OutcomeCard of={outcome} />}
    </>
  )
}

function PlanCard({
  of,
  isAsking,
  onApply,
}: {
  readonly of: Plan
  readonly isAsking: boolean
  readonly onApply: () => unknown
}) {
  const { before, dryRun, elsewhere } = of
  const { difference, cut } = dryRun
  const ceiling = elsewhere?.layers?.find(({ layer, verdict }) => layer === 'ceiling' && !verdict.allows)
  const denial = elsewhere?.layers?.find(({ layer, verdict }) => layer === 'tenant' && verdict.reason === 'host_denied')
  return (
    <section class="card" aria-label="What would change" aria-live="polite">
      <Facts
        of={[
          ['Tenant', <Outside text={of.tenant} />],
          [
            'Comes from',
            before === undefined
              ? 'nowhere: the tenant has no policy, so it is refused everything'
              : sourceText(before.source),
          ],
          ['Version now', <code>{before?.version ?? 'none'}</code>],
          ['Version then', <code>{dryRun.version}</code>],
          ['Mode', difference.mode.to === 'report' && 'report: what it refuses is let out and written down'],
        ]}
      />
      <h2>Difference</h2>
      <ul class="difference">
        <Step name="kind" {...difference.kind} />
        <Step name="mode" {...difference.mode} />
        {difference.allowedHosts.appear.map((entry) => (
          <li class="appears">
            <span aria-hidden="true">+</span>
            <span class="unheard">appears:</span> <Outside text={entry} />
          </li>
        ))}
        {difference.allowedHosts.vanish.map((entry) => (
          <li class="vanishes">
            <span aria-hidden="true">−</span>
            <span class="unheard">vanishes:</span> <Outside text={entry} />
          </li>
        ))}
      </ul>
      <h2>Dry run</h2>
      <p>{cut.count === 0 ? 'No open tunnel would be cut.' : `${countText(cut.count)} open tunnels would be cut:`}</p>
      {cut.count > 0 && (
        <ul class="plain">
          {cut.tunnels.map(({ sandbox, host, port, reason }) => (
            <li>
              <Outside text={`${host}:${port}`} /> of <Outside text={sandbox} />, <code>{reason}</code>
            </li>
          ))}
        </ul>
      )}
      {ceiling && (
        <Notice kind="warn">
          <p>
            The ceiling refuses it (<code>{ceiling.verdict.reason}</code>): applying this lets nothing out until the
            configuration allows it.
          </p>
        </Notice>
      )}
      {denial && (
        <Notice kind="warn">
          <Outside
            text={`The entry ${denial.verdict.rule ?? ''} of deniedHosts refuses it, and a denial wins: applying this lets nothing out.`}
          />
        </Notice>
      )}
      {before !== undefined && before.source !== 'api' && (
        <p class="quiet">
          The whole policy is kept in the state folder from then on, and stands in the place of what{' '}
          {sourceText(before.source)} says of the tenant.
        </p>
      )}
      <div class="actions">
        <Action kind="main" onClick={onApply} why={whyNot('policy') ?? (isAsking ? 'Asking the gateway…' : undefined)}>
          Apply
        </Action>
      </div>
    </section>
  )
}

function Step({ name, from, to }: { readonly name: string; readonly from: string | null; readonly to: string | null }) {
  if (from === to) return null
  return (
    <li class="changes">
      <span aria-hidden="true">~</span> {name}: <Outside text={from ?? 'none'} /> becomes{' '}
      <Outside text={to ?? 'none'} />
    </li>
  )
}

function OutcomeCard({ of: { change, after } }: { readonly of: Outcome }) {
  const isOut = after?.decision.effective === 'allow'
  return (
    <section class="card" aria-label="What was done">
      <Notice kind="good">
        <p>
          In force as version <code>{change.version}</code>.{' '}
          {change.cut === 0 ? 'No tunnel was cut.' : `${countText(change.cut)} tunnels were cut.`} The audit log has it
          under your name.
        </p>
      </Notice>
      {after && (
        <p>
          Asked now, the gateway says of ceiling and tenant:{' '}
          <span class={`chip ${isOut ? 'good' : 'bad'}`}>{isOut ? 'would be let out' : 'would be refused'}</span>{' '}
          {!isOut && (
            <Outside
              text={[after.decision.reason, after.decision.layer && `by the ${after.decision.layer}`]
                .filter(Boolean)
                .join(', ')}
            />
          )}
        </p>
      )}
      <div class="actions">
        <Action onClick={() => go('decisions', { tenant: change.tenant })} why={whyNot('read')} tellsWhy={false}>
          Follow the tenant live
        </Action>
      </div>
    </section>
  )
}

/** @throws ApiFault */
async function makePlan(tenant: string, entry: string): Promise<Plan | { readonly why: string }> {
  const path = `/v1/policies/${encodeURIComponent(tenant)}`
  const before = await ask<PolicyShown>('GET', path).catch((fault: unknown) => {
    if (fault instanceof ApiFault && fault.code === 'not_found') return undefined
    throw fault
  })
  if (before?.source === 'file')
    return { why: 'The policy of the tenant comes from a file of `policy.tenantFiles`: change it there.' }
  const extended = withEntry(before?.policy, entry)
  if (!extended.ok) return { why: extended.why }
  const dryRun = await ask<DryRunShown>('POST', `${path}:check`, { body: { policy: extended.policy } })
  return { tenant, entry, before, next: extended.policy, dryRun, elsewhere: await explained(tenant, entry) }
}

/** What the gateway says of the destination that an entry names; nothing for a wildcard, a range or a set, and without the scope. */
async function explained(tenant: string, entry: string): Promise<ExplanationShown | undefined> {
  const [, host, port = '443'] = /^(\[[0-9a-f:.]+\]|[^:*@/[\]]+)(?::(\d+))?$/i.exec(entry) ?? []
  if (host === undefined || whyNot('read') !== undefined) return undefined
  return ask<ExplanationShown>('POST', '/v1/explain', { body: { tenant, host, port: Number(port) } }).catch(
    () => undefined,
  )
}

function sourceText(source: PolicyShown['source']): string {
  return {
    api: 'the control API',
    configuration: 'the configuration',
    file: 'the files of policies',
    resolver: 'the resolver of tenants',
  }[source]
}
