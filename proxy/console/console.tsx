/** The page: who looks at which gateway, the menu, and the view that was chosen. */
import { useEffect, useRef } from 'preact/hooks'
import type { FunctionComponent } from 'preact'
import gate from './gate.svg'
import { momentText } from './format.ts'
import { Choice } from './parts/field.tsx'
import { Action } from './parts/action.tsx'
import { Outside } from './parts/outside.tsx'
import { linkTo, place, type View, VIEWS } from './place.ts'
import { caller, type Scope, signOut, whyNot } from './session.ts'
import { applyTheme, theme, type Theme } from './theme.ts'
import { AllowView } from './views/allow.tsx'
import { AuditView } from './views/audit.tsx'
import { DecisionsView } from './views/decisions.tsx'
import { ExplainView } from './views/explain.tsx'
import { HealthView } from './views/health.tsx'
import { RefusedView } from './views/refused.tsx'
import { SandboxView } from './views/sandbox.tsx'
import { SignIn } from './views/sign-in.tsx'
import { TunnelsView } from './views/tunnels.tsx'

interface ViewDescription {
  readonly name: string
  readonly shows: FunctionComponent
  /** One of these opens it. */
  readonly needs: readonly Scope[]
}

const DESCRIPTIONS: Readonly<Record<View, ViewDescription>> = {
  decisions: { name: 'Live decisions', shows: DecisionsView, needs: ['read'] },
  sandbox: { name: 'Sandbox', shows: SandboxView, needs: ['read'] },
  refused: { name: 'Refused hosts', shows: RefusedView, needs: ['read'] },
  tunnels: { name: 'Tunnels', shows: TunnelsView, needs: ['read', 'token'] },
  allow: { name: 'Allow a host', shows: AllowView, needs: ['read', 'policy'] },
  explain: { name: 'Explain', shows: ExplainView, needs: ['read'] },
  audit: { name: 'Audit log', shows: AuditView, needs: ['read'] },
  health: { name: 'Health and limits', shows: HealthView, needs: ['read'] },
}

const THEME_NAMES = [
  ['system', 'As the system'],
  ['light', 'Light'],
  ['dark', 'Dark'],
] as const satisfies readonly (readonly [Theme, string])[]

/** All of it. */
export function Console() {
  const isIn = caller.value !== undefined
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      <TopBar />
      {isIn ? (
        <div class="frame">
          <Menu />
          <Shown />
        </div>
      ) : (
        <SignIn />
      )}
    </>
  )
}

/** The address after `#` is the view's, so the browser may not follow this link itself. */
function skip(event: Event): void {
  event.preventDefault()
  document.getElementById('main')?.focus()
}

function TopBar() {
  const who = caller.value
  return (
    <header class="top">
      <img src={gate} alt="" width="20" height="20" />
      <strong>Sallyport</strong>
      <span class="host">
        <Outside text={location.host} />
      </span>
      <span class="rest" />
      {who && (
        <span class="who">
          <Outside text={who.author} />
          {who.scopes.map((scope) => (
            <span class="chip quiet">{scope}</span>
          ))}
          {who.expiresAt !== undefined && <span class="quiet">until {momentText(who.expiresAt)}</span>}
        </span>
      )}
      <Choice label="Colours" value={theme.value} options={THEME_NAMES} onChoose={applyTheme} />
      {who && <Action onClick={() => signOut()}>Sign out</Action>}
    </header>
  )
}

function Menu() {
  return (
    <nav aria-label="Views">
      <ul>
        {VIEWS.map((view) => {
          const { name, needs } = DESCRIPTIONS[view]
          const why = whyNot(...needs)
          return (
            <li>
              {why === undefined ? (
                <a href={linkTo(view)} aria-current={place.value.view === view ? 'page' : undefined}>
                  {name}
                </a>
              ) : (
                <a role="link" tabIndex={0} aria-disabled="true" aria-describedby={`why-${view}`}>
                  {name}
                  <span class="why" id={`why-${view}`}>
                    {why}
                  </span>
                </a>
              )}
            </li>
          )
        })}
      </ul>
    </nav>
  )
}

function Shown() {
  const { view } = place.value
  const { name, shows: View, needs } = DESCRIPTIONS[view]
  const why = whyNot(...needs)
  const main = useRef<HTMLElement>(null)
  const isFirst = useRef(true)
  useEffect(() => {
    document.title = `${name} · Sallyport console`
    // Whoever goes to a view by keyboard is in it then.
    if (!isFirst.current) main.current?.focus({ preventScroll: true })
    isFirst.current = false
  }, [view])
  return (
    <main id="main" tabIndex={0} ref={main} class={view}>
      {why === undefined ? (
        <View />
      ) : (
        <>
          <h1>{name}</h1>
          <p class="notice plain">{why}</p>
        </>
      )}
    </main>
  )
}
