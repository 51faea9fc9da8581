/** What the gateway would decide about a destination, and which layer and entry decide. */
import { useState } from 'preact/hooks'
import type { ExplanationShown } from '../../admin/routes/explain.ts'
import { ask } from '../api.ts'
import { Action } from '../parts/action.tsx'
import { Choice, TextField } from '../parts/field.tsx'
import { Facts } from '../parts/facts.tsx'
import { FaultNotice } from '../parts/notice.tsx'
import { Outside } from '../parts/outside.tsx'
import { useAsked } from '../parts/use-asked.ts'
import { Allows } from '../parts/verdict.tsx'
import { go, place } from '../place.ts'
import { whyNot } from '../session.ts'

type Subject = 'tenant' | 'token'

const SUBJECTS = [
  ['tenant', 'A tenant'],
  ['token', 'A token or handle'],
] as const satisfies readonly (readonly [Subject, string])[]

interface Question {
  readonly tenant?: string
  readonly token?: string
  readonly host: string
  readonly port: number
  readonly resolve: boolean
}

/** See above. */
export function ExplainView() {
  const { of } = place.value
  const [subject, setSubject] = useState<Subject>('tenant')
  const [tenant, setTenant] = useState(of['tenant'] ?? '')
  const [token, setToken] = useState('')
  const [host, setHost] = useState(of['host'] ?? '')
  const [port, setPort] = useState(of['port'] ?? '443')
  const [resolves, setResolves] = useState(false)
  const [question, setQuestion] = useState<Question | undefined>(() =>
    of['host'] === undefined
      ? undefined
      : {
          host: of['host'],
          port: Number(of['port'] ?? 443),
          resolve: false,
          ...(of['tenant'] && { tenant: of['tenant'] }),
        },
  )
  const answer = useAsked<ExplanationShown>(
    question && ((signal) => ask('POST', '/v1/explain', { body: question, signal })),
    [question],
  )
  const submit = (event: Event): void => {
    event.preventDefault()
    const who = subject === 'token' ? { token: token.trim() } : tenant === '' ? {} : { tenant }
    setQuestion({ ...who, host: host.trim(), port: Number(port), resolve: resolves })
  }
  return (
    <>
      <header class="view">
        <h1>Explain</h1>
        <p class="quiet">
          The gateway's own answer, by the policies in force now. Nothing is connected or written down.
        </p>
      </header>
      <form class="filters" onSubmit={submit} aria-label="Question">
        <Choice label="For" value={subject} options={SUBJECTS} onChoose={setSubject} />
        {subject === 'tenant' ? (
          <TextField label="Tenant" value={tenant} onInput={setTenant} placeholder="none: the ceiling alone" />
        ) : (
          <TextField label="Token or handle" type="password" value={token} onInput={setToken} required />
        )}
        <TextField label="Host" value={host} onInput={setHost} required />
        <TextField label="Port" value={port} onInput={setPort} required />
        <label class="check">
          <input type="checkbox" checked={resolves} onChange={(event) => setResolves(event.currentTarget.checked)} />
          Resolve the name
        </label>
        <Action kind="main" type="submit">
          Explain
        </Action>
      </form>
      <FaultNotice fault={answer.fault} />
      {answer.value && <Explanation of={answer.value} tenant={question?.tenant} />}
    </>
  )
}

function Explanation({ of, tenant }: { readonly of: ExplanationShown; readonly tenant: string | undefined }) {
  const { decision, layers = [], addresses = [], host, port, token, version, note } = of
  const isOut = decision.effective === 'allow'
  return (
    <section class="card" aria-label="Answer" aria-live="polite">
      <p class="answer">
        <span class={`chip large ${isOut ? 'good' : 'bad'}`}>{isOut ? 'would be let out' : 'would be refused'}</span>
        <Outside text={host === undefined ? undefined : `${host}:${port ?? ''}`} absent="" />
        {isOut && decision.decision === 'deny' && <span class="chip warn">reported only</span>}
      </p>
      <Facts
        of={[
          ['Reason', decision.reason && <code>{decision.reason}</code>],
          ['Layer', decision.layer],
          ['Entry', decision.rule && <Outside text={decision.rule} />],
          ['Detail', decision.detail && <Outside text={decision.detail} />],
          ['Note', note && <Outside text={note} />],
          ['Policy version', version && <code>{version}</code>],
          ['Token', token && <Outside text={`${token.tokenId} of ${token.issuer}`} />],
          ['Tenant of the token', token?.tenant && <Outside text={token.tenant} />],
        ]}
      />
      {layers.length > 0 && (
        <table>
          <caption>Verdict of each layer: all must allow</caption>
          <thead>
            <tr>
              <th scope="col">Layer</th>
              <th scope="col">Verdict</th>
              <th scope="col">Policy</th>
              <th scope="col">Mode</th>
              <th scope="col">Reason</th>
              <th scope="col">Entry</th>
            </tr>
          </thead>
          <tbody>
            {layers.map(({ layer, verdict, kind, mode }) => (
              <tr>
                <th scope="row">{layer}</th>
                <td>
                  <Allows yes={verdict.allows} />
                </td>
                <td>{kind}</td>
                <td>{mode}</td>
                <td>
                  <Outside text={verdict.reason} />
                </td>
                <td>
                  <Outside text={verdict.rule} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {addresses.length > 0 && (
        <table>
          <caption>Addresses that were judged</caption>
          <thead>
            <tr>
              <th scope="col">Address</th>
              <th scope="col">Class</th>
              <th scope="col">Verdict</th>
            </tr>
          </thead>
          <tbody>
            {addresses.map(({ address, class: kind, prohibited }) => (
              <tr>
                <td>
                  <Outside text={address} />
                </td>
                <td>{kind}</td>
                <td>
                  {prohibited ? (
                    <span class="chip bad">prohibited</span>
                  ) : (
                    <span class="chip good">may be reached</span>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {!isOut && tenant !== undefined && host !== undefined && (
        <div class="actions">
          <Action
            onClick={() => go('allow', { tenant, host, port: String(port ?? 443) })}
            why={whyNot('read', 'policy')}
          >
            Allow this host for this tenant…
          </Action>
        </div>
      )}
    </section>
  )
}
