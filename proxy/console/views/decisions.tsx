/** Live decisions: the audit log as it is written, filtered, and held whenever somebody looks closer. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { AuditLine } from '../../audit/schema.ts'
import { follow, type FollowState } from '../follow.ts'
import { clockText, countText } from '../format.ts'
import { KEPT_LINES, LineStore, type ShownLine } from '../line-store.ts'
import { detailOf, outcomeOf, searchTextOf, targetOf } from '../lines.ts'
import { Action } from '../parts/action.tsx'
import { Choice, TextField } from '../parts/field.tsx'
import { type Column, Grid } from '../parts/grid.tsx'
import { LinePanel } from '../parts/line-panel.tsx'
import { Notice } from '../parts/notice.tsx'
import { Outside } from '../parts/outside.tsx'
import { type Outcome, Verdict } from '../parts/verdict.tsx'
import { go, place } from '../place.ts'

/** So many of the last lines come first. */
const FIRST_LINES = 500
/** For somebody who types. */
const TYPING_MS = 250

const OUTCOMES = [
  ['', 'All outcomes'],
  ['refused', 'Refused'],
  ['let out', 'Let out'],
  ['reported', 'Reported only'],
  ['credentials', 'Credentials refused'],
  ['closed', 'Closed'],
  ['operator', 'Operators'],
] as const satisfies readonly (readonly [Outcome | '', string])[]

type Chosen = (typeof OUTCOMES)[number][0]

const COLUMNS: readonly Column<ShownLine>[] = [
  { name: 'Time', width: '7.2rem', cell: ({ line }) => <time dateTime={line.time}>{clockText(line.time)}</time> },
  { name: 'Outcome', width: '6.4rem', cell: ({ line }) => <Verdict of={outcomeOf(line)} /> },
  { name: 'Tenant', width: 'minmax(5rem, 1fr)', cell: ({ line }) => <Outside text={line.tenant} /> },
  { name: 'Sandbox', width: 'minmax(6rem, 1.2fr)', cell: ({ line }) => <Outside text={line.sandbox} /> },
  { name: 'Destination', width: 'minmax(10rem, 3fr)', cell: ({ line }) => <Outside text={targetOf(line)} /> },
  { name: 'Why', width: 'minmax(8rem, 3fr)', cell: ({ line }) => <Outside text={detailOf(line)} /> },
]

/** See above. */
export function DecisionsView() {
  const { tenant = '', sandbox = '', host = '', outcome = '' } = place.value.of
  const [words, setWords] = useState('')
  const [chosen, setChosen] = useState<ShownLine>()
  const [state, setState] = useState<{ readonly state: FollowState; readonly why?: string }>({ state: 'connecting' })
  const matches = useRef<(line: AuditLine) => boolean>(() => true)
  const store = useMemo(() => new LineStore(() => matches.current), [])
  const wanted = useSettled({ tenant, sandbox, host })

  const typed = words.trim().toLowerCase()
  matches.current = (line) =>
    (outcome === '' || outcomeOf(line) === outcome) && (typed === '' || searchTextOf(line).includes(typed))

  useEffect(() => () => store.close(), [])
  useEffect(() => store.filter(), [outcome, typed])
  useEffect(() => {
    const controller = new AbortController()
    store.clear()
    void follow({
      filters: wanted,
      lines: FIRST_LINES,
      onLine: store.add,
      onState: (next, why) => setState({ state: next, ...(why !== undefined && { why }) }),
      signal: controller.signal,
    })
    return () => controller.abort()
  }, [wanted])

  const set = (of: Readonly<Record<string, string>>): void => go('decisions', { ...place.value.of, ...of }, true)
  const clear = (): void => {
    setWords('')
    go('decisions', {}, true)
  }
  return (
    <>
      <header class="view">
        <h1>Live decisions</h1>
        <Flow state={state.state} store={store} />
        <PauseButton store={store} />
      </header>
      <form class="filters" role="search" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
        <Choice<Chosen>
          label="Outcome"
          value={chosenOutcome(outcome)}
          options={OUTCOMES}
          onChoose={(next) => set({ outcome: next })}
        />
        <TextField label="Tenant" value={tenant} onInput={(next) => set({ tenant: next })} placeholder="exactly" />
        <TextField label="Sandbox" value={sandbox} onInput={(next) => set({ sandbox: next })} placeholder="exactly" />
        <TextField label="Host" value={host} onInput={(next) => set({ host: next })} placeholder="exactly" />
        <TextField label="Any field" type="search" value={words} onInput={setWords} placeholder="part of it" />
        <Action kind="quiet" onClick={clear}>
          Clear
        </Action>
      </form>
      {state.state === 'broken' && (
        <Notice kind="warn">
          The log is not followed at the moment{state.why === undefined ? '' : `: ${state.why}`}. What comes meanwhile
          is in the log.
        </Notice>
      )}
      <div class={chosen === undefined ? 'split' : 'split open'}>
        <Lines
          store={store}
          chosen={chosen?.key}
          onChoose={setChosen}
          empty={state.state === 'open' ? 'No line yet that fits. New ones appear by themselves.' : 'Connecting…'}
        />
        {chosen && <LinePanel line={chosen.line} onClose={() => setChosen(undefined)} />}
      </div>
    </>
  )
}

interface LinesProps {
  readonly store: LineStore
  readonly chosen: string | undefined
  readonly onChoose: (line: ShownLine) => void
  readonly empty: string
}

/** The only part that is drawn anew when lines come. */
function Lines({ store, chosen, onChoose, empty }: LinesProps) {
  const hold = (): void => store.hold(true)
  return (
    <Grid
      label="Lines of the audit log, newest first"
      columns={COLUMNS}
      count={store.shown.value.length}
      rowAt={(index) => store.at(index)}
      keyOf={({ key }) => key}
      kindOf={({ line }) => outcomeOf(line).replace(' ', '-')}
      chosen={chosen}
      onChoose={(row) => {
        hold()
        onChoose(row)
      }}
      onMove={hold}
      empty={empty}
    />
  )
}

function PauseButton({ store }: { readonly store: LineStore }) {
  const isHeld = store.held.value
  const waiting = store.waiting.value
  return (
    <Action kind={isHeld ? 'main' : 'plain'} pressed={isHeld} onClick={() => store.hold(!isHeld)}>
      {isHeld ? (waiting === 0 ? 'Resume' : `Resume (${countText(waiting)} new)`) : 'Pause'}
    </Action>
  )
}

function Flow({ state, store }: { readonly state: FollowState; readonly store: LineStore }) {
  const passed = store.passed.value
  return (
    <span class="flow">
      <span class={`lamp ${store.held.value ? 'held' : state}`} />
      {store.held.value ? 'held' : state === 'open' ? 'live' : state === 'connecting' ? 'connecting' : 'not connected'}
      <span class="quiet">
        {countText(store.rate.value)} lines a second; {countText(store.shown.value.length)} shown
        {passed > 0 &&
          `, ${countText(passed)} older ones not (the newest ${countText(KEPT_LINES)} are kept; all are in the log)`}
      </span>
    </span>
  )
}

function chosenOutcome(text: string): Chosen {
  return OUTCOMES.find(([each]) => each === text)?.[0] ?? ''
}

/** The value, once it has been the same for a moment. */
function useSettled<T extends Readonly<Record<string, string>>>(value: T): T {
  const [settled, setSettled] = useState(value)
  const text = JSON.stringify(value)
  useEffect(() => {
    if (text === JSON.stringify(settled)) return
    const timer = window.setTimeout(() => setSettled(value), TYPING_MS)
    return () => clearTimeout(timer)
  }, [text])
  return settled
}
