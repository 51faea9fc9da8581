/** Whether the audit log is whole: its last checkpoint, its last verification, and where its lines go. */
import { useState } from 'preact/hooks'
import type { IntegrityShown } from '../../admin/routes/integrity.ts'
import type { StatusShown } from '../../admin/routes/status.ts'
import { ask } from '../api.ts'
import { countText, momentText, spanText } from '../format.ts'
import { Action } from '../parts/action.tsx'
import { Facts } from '../parts/facts.tsx'
import { FaultNotice, Notice } from '../parts/notice.tsx'
import { Outside } from '../parts/outside.tsx'
import { useAsked } from '../parts/use-asked.ts'

const EVERY_MS = 2_000
/** A checkpoint follows a line within ten seconds. */
const LATE_MS = 60_000

/** See above. */
export function AuditView() {
  const integrity = useAsked<IntegrityShown>((signal) => ask('GET', '/v1/audit/integrity', { signal }), [], EVERY_MS)
  const status = useAsked<StatusShown>((signal) => ask('GET', '/v1/status', { signal }), [], EVERY_MS)
  const [fault, setFault] = useState<unknown>()
  const verify = async (): Promise<void> => {
    setFault(undefined)
    try {
      await ask('POST', '/v1/audit:verify')
    } catch (problem) {
      setFault(problem)
    }
    integrity.again()
  }
  const { value } = integrity
  return (
    <>
      <header class="view">
        <h1>Audit log</h1>
        <p class="quiet">
          Of this gateway, as it sees its own files. Proof for others is made elsewhere: sallyport audit verify, with
          the public key.
        </p>
      </header>
      <FaultNotice fault={fault ?? integrity.fault ?? status.fault} />
      {value && (
        <div class="cards">
          <section class="card">
            <h2>Writing</h2>
            <p>
              {value.writable ? (
                <span class="chip good large">lines are written</span>
              ) : (
                <span class="chip bad large">can not be written</span>
              )}
            </p>
            {!value.writable && (
              <Notice kind="bad">
                {status.value?.audit.onFailure === 'allow'
                  ? 'Connections are let out meanwhile, as audit.onFailure says.'
                  : 'New connections are refused meanwhile: audit.onFailure is deny.'}
              </Notice>
            )}
            <Facts of={[['Instance', <Outside text={value.instance} />]]} />
          </section>
          <LastCheckpoint of={value} />
          <Verification of={value} onVerify={verify} />
        </div>
      )}
      {status.value && <Sinks of={status.value} />}
    </>
  )
}

function LastCheckpoint({ of: { lastCheckpoint } }: { readonly of: IntegrityShown }) {
  return (
    <section class="card">
      <h2>Last checkpoint</h2>
      {lastCheckpoint === undefined ? (
        <p class="quiet">None in this run yet.</p>
      ) : (
        <>
          <p>
            <span class="chip good large">signed up to line {countText(lastCheckpoint.seq)}</span>
          </p>
          <Facts
            of={[
              [
                'When',
                `${momentText(lastCheckpoint.time)}, ${spanText(Math.max(0, Date.now() - Date.parse(lastCheckpoint.time)))} ago`,
              ],
              ['File', lastCheckpoint.segment !== undefined && countText(lastCheckpoint.segment)],
              ['Key', <Outside text={lastCheckpoint.signer} />],
              [
                'Note',
                Date.now() - Date.parse(lastCheckpoint.time) > LATE_MS &&
                  'nothing was written since; a line is signed within ten seconds',
              ],
            ]}
          />
        </>
      )}
    </section>
  )
}

function Verification({
  of: { verification, verifying },
  onVerify,
}: {
  readonly of: IntegrityShown
  readonly onVerify: () => unknown
}) {
  return (
    <section class="card" aria-live="polite">
      <h2>Verification</h2>
      {verification === undefined && (
        <p class="quiet">{verifying ? 'The first one is underway.' : 'Not verified in this run yet.'}</p>
      )}
      {verification && (
        <>
          <p>
            {verification.outcome === 'verified' && <span class="chip good large">verified</span>}
            {verification.outcome === 'failed' && <span class="chip bad large">does not verify</span>}
            {verification.outcome === 'unreadable' && <span class="chip warn large">could not be read</span>}
          </p>
          {verification.fault && (
            <Notice kind="bad">
              <code>{verification.fault.code}</code> <Outside text={verification.fault.message} />
            </Notice>
          )}
          <Facts
            of={[
              ['When', momentText(verification.endedAt)],
              ['Took', spanText(Date.parse(verification.endedAt) - Date.parse(verification.startedAt))],
              ['Lines right', verification.lines !== undefined && countText(verification.lines)],
              ['Files', verification.files !== undefined && countText(verification.files)],
              ['Checkpoints', verification.checkpoints !== undefined && countText(verification.checkpoints)],
              ['Not signed yet', verification.unsignedLines !== undefined && countText(verification.unsignedLines)],
              [
                'Counted as lost',
                verification.lostLines !== undefined && verification.lostLines > 0 && countText(verification.lostLines),
              ],
              [
                'File of the fault',
                verification.fault?.file && (
                  <Outside text={`${verification.fault.file}, line ${verification.fault.line ?? '?'}`} />
                ),
              ],
            ]}
          />
        </>
      )}
      <div class="actions">
        <Action onClick={onVerify} why={verifying ? 'One is underway.' : undefined}>
          Verify now
        </Action>
      </div>
      <p class="quiet">Every line is read and hashed, every signature checked, in a thread of its own.</p>
    </section>
  )
}

function Sinks({ of: { audit } }: { readonly of: StatusShown }) {
  return (
    <section class="card">
      <table>
        <caption>Where lines go beside the files</caption>
        <thead>
          <tr>
            <th scope="col">Sink</th>
            <th scope="col" class="number">
              Behind, lines
            </th>
            <th scope="col" class="number">
              Behind, time
            </th>
            <th scope="col" class="number">
              Delivered
            </th>
            <th scope="col" class="number">
              Failed attempts
            </th>
            <th scope="col" class="number">
              Refused for good
            </th>
            <th scope="col" class="number">
              Gone before
            </th>
          </tr>
        </thead>
        <tbody>
          {audit.sinks.map(({ name, lagRecords, lagSeconds, delivered, failures, refused, missing }) => (
            <tr>
              <th scope="row">
                <Outside text={name} />
              </th>
              <td class="number">{countText(lagRecords)}</td>
              <td class="number">{lagSeconds === 0 ? '–' : spanText(lagSeconds * 1_000)}</td>
              <td class="number">{countText(delivered)}</td>
              <td class="number">{countText(failures)}</td>
              <td class={refused > 0 ? 'number bad' : 'number'}>{countText(refused)}</td>
              <td class={missing > 0 ? 'number bad' : 'number'}>{countText(missing)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {audit.sinks.length === 0 && <p class="empty">No sink is configured: the files are the log.</p>}
    </section>
  )
}
