/** Something that the reader should know: a fault, a warning, or that something worked. */
import type { ComponentChildren } from 'preact'
import { ApiFault } from '../api.ts'
import { textOf } from '../format.ts'
import { Outside } from './outside.tsx'

/** `bad` and `warn` interrupt whoever listens to the page; the others wait. */
export function Notice({
  kind,
  children,
}: {
  readonly kind: 'bad' | 'warn' | 'good' | 'plain'
  readonly children: ComponentChildren
}) {
  return (
    <div class={`notice ${kind}`} role={kind === 'bad' || kind === 'warn' ? 'alert' : 'status'}>
      {children}
    </div>
  )
}

/** A fault of the API, with what is to be done about it. Its words may hold names from outside. */
export function FaultNotice({ fault }: { readonly fault: unknown }) {
  if (fault === undefined) return null
  const { advice, faults } = fault instanceof ApiFault ? fault : { advice: undefined, faults: [] }
  return (
    <Notice kind="bad">
      <p>
        <Outside text={textOf(fault)} />
      </p>
      {advice !== undefined && <p class="quiet">{advice}</p>}
      {faults.length > 1 && (
        <ul>
          {faults.slice(0, 20).map(({ path, message, hint }) => (
            <li>
              <code>
                <Outside text={path} />
              </code>{' '}
              <Outside text={hint === undefined ? message : `${message}; ${hint}`} />
            </li>
          ))}
        </ul>
      )}
    </Notice>
  )
}
