/** One audit line, whole, and what may be done about it. */
import type { AuditLine } from '../../audit/schema.ts'
import { detailOf, isLiftable, outcomeOf, targetOf } from '../lines.ts'
import { go } from '../place.ts'
import { whyNot } from '../session.ts'
import { Action } from './action.tsx'
import { Facts } from './facts.tsx'
import { Outside } from './outside.tsx'
import { Verdict } from './verdict.tsx'

/** The chain is for `audit verify`, and told by the view of the log. */
const LEFT_OUT = new Set(['prev', 'signature', 'kind', 'effective', 'decision'])

/** See above. */
export function LinePanel({ line, onClose }: { readonly line: AuditLine; readonly onClose: () => void }) {
  const { tenant, sandbox, host, port } = line
  const fields = Object.entries(line).filter(([name]) => !LEFT_OUT.has(name))
  return (
    <aside class="panel" aria-label="The line that was chosen">
      <header>
        <Verdict of={outcomeOf(line)} />
        <h2>
          <Outside text={targetOf(line) ?? (line.kind === 'admin' ? line.action : undefined)} />
        </h2>
        <Action kind="quiet" onClick={onClose}>
          Close
        </Action>
      </header>
      <p class="quiet">
        <Outside text={detailOf(line)} />
      </p>
      <div class="actions">
        {sandbox !== undefined && (
          <Action onClick={() => go('sandbox', { sandbox, tenant })} why={whyNot('read')}>
            Story of the sandbox
          </Action>
        )}
        {host !== undefined && (
          <Action
            onClick={() => go('explain', { tenant, host, port: port === undefined ? undefined : String(port) })}
            why={whyNot('read')}
          >
            Explain
          </Action>
        )}
        {isLiftable(line) && (
          <Action
            onClick={() =>
              go('allow', { tenant: line.tenant, host: line.host, port: String(port ?? 443), layer: line.layer })
            }
            why={whyNot('read', 'policy')}
          >
            Allow for this tenant…
          </Action>
        )}
      </div>
      <Facts of={fields.map(([name, value]) => [name, <Outside text={fieldText(value)} />] as const)} />
    </aside>
  )
}

function fieldText(value: unknown): string {
  return Array.isArray(value) ? value.map(String).join(', ') : String(value)
}
