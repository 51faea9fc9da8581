/** From the order to a worker that answers: made, found again where the reply was lost, waited for, and asked why where it does not come. */
import { setTimeout as delay } from 'node:timers/promises'
import { createWorkerClient, WorkerFault } from '../../worker-client.ts'
import { PROTOCOL } from '../../worker/wire.ts'
import { SandboxError } from '../../sandbox-error.ts'
import { cleanText } from '../platform/clean-text.ts'
import { PlatformError } from '../platform/platform-error.ts'
import { hasEnded, type Machine, type MachinesApi, privateAddressOf } from './machines-api.ts'
import { GUEST_INIT, GUEST_SAID, type MachineRequest, metadataOf, WORKER_PORT } from './machine-request.ts'

/** How one is started. */
export interface MachineStart {
  readonly id: string
  readonly request: MachineRequest
  /** Of the worker, until it gets another. */
  readonly firstBearer: string
  readonly deadlineMs: number
  readonly signal: AbortSignal | undefined
  readonly connectTo: (address: string) => Parameters<typeof createWorkerClient>[0]['connect']
}

/** A list may be older than what was made just now. */
const LOOKS = 4
const LOOK_PAUSE_MS = 1_000
const POLL_MS = 250
/** Milliseconds between two looks at a machine whose worker does not answer yet. */
const STATE_EVERY_MS = 1_000
/** Replies that no worker gives, one after another, until it is believed that it is none. */
const MAX_NONSENSE = 10
const HEALTH_TIMEOUT_MS = 5_000

/** What the init of our image ends with, besides what ends any program. */
const EXIT_CODES: Readonly<Record<number, string>> = {
  64: 'it was given no settings, or an address that is none',
  65: 'the rules of its network could not be loaded: its kernel or its image has no nftables',
  66: 'its image lacks what runs the worker',
  126: `its image has no \`${GUEST_INIT}\` that runs`,
  127: `its image has no \`${GUEST_INIT}\``,
}

/** Machines of a sandbox: one, or none. Looks several times where there must be one. */
export async function findMachine(
  api: MachinesApi,
  id: string,
  looks = 1,
  signal?: AbortSignal,
): Promise<Machine | undefined> {
  // prettier-ignore
  for (let look = 1; ; look++) {
    const [found] = await api.list(metadataOf(id), { signal })
    // The list may be old: what counts is the machine itself.
    const present = found === undefined ? undefined : await api.get(found.id, signal)
    if (present !== undefined || look >= looks) return present
    await delay(LOOK_PAUSE_MS)
  }
}

/** @throws PlatformError; what was made by then is for {@link removeMachine} */
export async function makeMachine(api: MachinesApi, start: MachineStart): Promise<Machine> {
  const { id, request, firstBearer, deadlineMs, signal } = start
  try {
    const raw = (request.config['files'] as readonly { readonly raw_value: string }[]).map((file) => file.raw_value)
    return await api.create(request, [firstBearer, ...raw], deadlineMs, signal)
  } catch (error) {
    // The reply was lost, or the name is taken by what an earlier try of the same sandbox made.
    const mayBeThere = error instanceof PlatformError && (error.outcome === 'unknown' || error.fault === 'name_taken')
    const made = mayBeThere ? await findMachine(api, id, LOOKS, signal).catch(() => undefined) : undefined
    if (made === undefined) throw error
    return made
  }
}

/** Takes away the machine of a sandbox, whether or not it is known to be there. */
export async function removeMachine(api: MachinesApi, id: string, known?: string): Promise<void> {
  if (known !== undefined) {
    await api.destroy(known)
    return
  }
  const found = await findMachine(api, id, 2)
  if (found !== undefined) await api.destroy(found.id)
}

/** @throws PlatformError that says why it does not come */
export async function untilWorkerAnswers(api: MachinesApi, machine: Machine, start: MachineStart): Promise<void> {
  const { signal, firstBearer } = start
  const endMs = performance.now() + start.deadlineMs
  const left = (): number => endMs - performance.now()
  while (!(await api.wait(machine, 'started', left(), signal))) {
    await assertRuns(api, machine, start)
    if (left() <= 0) throw await silence(api, machine, 'it was not started in time')
    await delay(POLL_MS)
  }
  const address = privateAddressOf((await api.get(machine.id, signal)) ?? machine)
  const client = createWorkerClient({ connect: start.connectTo(address), token: firstBearer })
  let lookedMs = performance.now()
  let nonsense = 0
  for (;;) {
    signal?.throwIfAborted()
    try {
      const deadline = AbortSignal.timeout(Math.ceil(Math.max(1, Math.min(HEALTH_TIMEOUT_MS, left()))))
      const { protocol } = await client.health({ signal: signal === undefined ? deadline : AbortSignal.any([signal, deadline]) }) // prettier-ignore
      if (protocol === PROTOCOL) return
      throw new PlatformError('worker_version', `the worker in the image speaks version ${protocol}, and this is version ${PROTOCOL}: build and push the image again (deploy/fly/README.md)`) // prettier-ignore
    } catch (error) {
      signal?.throwIfAborted()
      if (error instanceof PlatformError) throw error
      const isRefusal = error instanceof SandboxError && error.cause instanceof WorkerFault
      const isNonsense = error instanceof SandboxError && error.outcome === 'unknown'
      nonsense = isNonsense ? nonsense + 1 : 0
      if (isRefusal || nonsense > MAX_NONSENSE)
        throw new PlatformError('image_unusable', `what answers on port ${WORKER_PORT} of the machine is not this version's worker: build and push the image again (deploy/fly/README.md)`) // prettier-ignore
    }
    if (performance.now() - lookedMs > STATE_EVERY_MS) {
      lookedMs = performance.now()
      await assertRuns(api, machine, start)
    }
    if (left() <= 0) throw await silence(api, machine, 'its worker did not answer in time')
    await delay(POLL_MS)
  }
}

/** @throws PlatformError when it has ended */
async function assertRuns(api: MachinesApi, machine: Machine, { id, signal }: MachineStart): Promise<void> {
  const present = await api.get(machine.id, signal)
  if (present !== undefined && !hasEnded(present)) return
  // One that is removed already is still in the list for a while, with what became of it.
  const last =
    present ?? (await api.list(metadataOf(id), { isWithEnded: true, signal })).find((each) => each.id === machine.id)
  const code = last?.events?.map(({ request }) => request?.exit_event?.exit_code).find((each) => each !== undefined)
  const why = code === undefined ? undefined : (EXIT_CODES[code] ?? `its init ended with ${code}`)
  const state = cleanText(last?.state ?? 'destroyed')
  const isOfImage = code !== undefined && code in EXIT_CODES
  throw new PlatformError(
    isOfImage ? 'image_unusable' : 'operation_failed',
    `the machine is \`${state}\` before its worker answered: ${why ?? 'the platform does not say why; `fly logs` may'}`,
  )
}

/** The platform's own way in is asked why a worker is silent; it is good for nothing else here. */
async function silence(api: MachinesApi, machine: Machine, what: string): Promise<PlatformError> {
  const command = ['/bin/sh', '-c', `cat ${GUEST_SAID} 2>/dev/null; ! grep -qi ':${WORKER_PORT.toString(16).padStart(4, '0')} .* 0A ' /proc/net/tcp6 || echo listening`] // prettier-ignore
  const { stdout = '' } = await api.exec(machine.id, command).catch((): { stdout?: string } => ({}))
  const said = cleanText(stdout)
  const isListening = said.endsWith('listening')
  const advice = isListening
    ? `it listens, but not for this process: is that in the private network of the app, and does the network policy let tcp/${WORKER_PORT} in?`
    : `inside is said: \`${said || 'nothing'}\`; is the image what deploy/fly builds?`
  return new PlatformError('worker_silent', `${what}: ${advice}`)
}
