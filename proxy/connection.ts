/**
 * The life of one connection, from what its dialect read to the moment its bytes may flow:
 * destination → identity → decide(name) → limits → resolve → decide(addresses) → dial(permit) → record.
 * Every step is a function of its own file; what each refuses comes back as a value, and a fault in any of them is a refusal.
 * Resolving and dialling take time: after each, the permission is asked for again, so that none is used that was lost meanwhile.
 */
import {
  type Allow,
  type Destination,
  decideAddresses,
  decideName,
  decideUnresolved,
  type Deny,
  type Layers,
  type NameAllow,
  type NetworkRules,
  type Permit,
} from '../policies/index.ts'
import type { AuditLog, AuthEntry, DecisionEntry } from './audit/record.ts'
import { outcomeEntry } from './audit/entry.ts'
import type { Resolved, Resolver } from './egress/resolver.ts'
import type { KnownDestinations } from './known-destinations.ts'
import type { Reason } from './reasons.ts'
import type { Authorized, ClientInfo, ConnectionRequest, Credentials, Progress, Refusal } from './request.ts'
import type { Identified } from './tokens/identify.ts'
import type { LimitCounters, Place } from './tunnels/limits.ts'
import { type LiveChecks, type Lost, lostPermission } from './tunnels/live-checks.ts'

/** What the way of a connection needs of the gateway around it. */
export interface Gate extends LiveChecks {
  readonly destinations: KnownDestinations
  /** Why nothing new is let out at the moment, such as `draining`; `undefined` in the ordinary case. */
  readonly closedFor: () => Reason | undefined
  readonly identify: (credentials: Credentials, client: ClientInfo) => Identified | Promise<Identified>
  /** `undefined` when an upstream proxy resolves names: then only names and literals are judged. */
  readonly resolver: () => Resolver | undefined
  readonly limits: LimitCounters
  readonly audit: AuditLog
  /** Whether what can't be written down is let out all the same (`audit.onFailure: allow`). */
  readonly letsOutUnrecorded: () => boolean
  /** Told of every request after its line was written, in the words of that line; `isOut` when it was let out. For metrics and traces. */
  readonly onOutcome: (
    request: ConnectionRequest,
    outcome: Authorized | Refusal,
    entry: AuthEntry | DecisionEntry,
    isOut: boolean,
  ) => void
  /** Told of a fault that became a refusal. */
  readonly onFault: (request: ConnectionRequest, error: unknown) => void
}

/** What a dial gave: a `T` that holds the open socket; or why not. */
export type Dialled<T> =
  | ({ readonly ok: true; readonly address: string } & T)
  | { readonly ok: false; readonly reason: Reason; readonly connectMs?: number }

/** An open way out, already written down. */
export interface Opened<T> {
  readonly ok: true
  readonly authorized: Authorized
  readonly upstream: T
}

/**
 * Lets one connection out or refuses it; either way the audit log has its line before this returns.
 * `dial` is given the permit and nothing else of the request. A refusal gives back its place under the limits.
 */
export async function openConnection<T extends { readonly destroy: () => void }>(
  gate: Gate,
  request: ConnectionRequest,
  dial: (permit: Permit) => Promise<Dialled<{ readonly upstream: T; readonly connectMs: number }>>,
): Promise<Opened<T> | Refusal> {
  const authorized = await authorize(gate, request)
  if (!authorized.ok) return recordRefusal(gate, request, authorized)
  const dialled = await dialFor(gate, request, authorized, dial, destroyUpstream)
  if (!dialled.ok) {
    authorized.place.release()
    return recordRefusal(gate, request, { ...progressOf(authorized), ...dialled })
  }
  const { upstream } = dialled
  try {
    if (await recordOutcome(gate, request, authorized, dialled)) return { ok: true, authorized, upstream }
  } catch (error) {
    gate.onFault(request, error)
  }
  upstream.destroy()
  authorized.place.release()
  return { ...progressOf(authorized), ok: false, reason: 'audit_unavailable' }
}

/** Dials for a permission, and gives up what was opened when the permission was lost in the meantime. A fault is a refusal. */
export async function dialFor<R extends { readonly ok: true } | { readonly ok: false }>(
  gate: Gate,
  request: ConnectionRequest,
  authorized: Authorized,
  dial: (permit: Permit) => Promise<R>,
  giveUp: (opened: Extract<R, { readonly ok: true }>) => void,
): Promise<R | Refusal> {
  let opened: Extract<R, { readonly ok: true }> | undefined
  try {
    const dialled = await dial(authorized.permit)
    if (!isOpen(dialled)) return dialled
    opened = dialled
    const losing = lostSince(gate, authorized)
    const lost = losing instanceof Promise ? await losing : losing
    if (lost === undefined) return dialled
    giveUp(opened)
    return lost
  } catch (error) {
    if (opened !== undefined) giveUp(opened)
    return refuseFault(gate, request, error)
  }
}

/** Everything up to the permit: whether policy and limits let the connection out. Dials nothing and records nothing. A fault is a refusal. */
export async function authorize(gate: Gate, request: ConnectionRequest): Promise<Authorized | Refusal> {
  let place: Place | undefined
  let isKept = false
  try {
    const target = gate.destinations.read(request.target)
    if (!target.ok) return { ok: false, reason: 'target_malformed', detail: target.fault.message }
    const destination = target.value

    const closed = gate.closedFor()
    if (closed) return { ok: false, reason: closed, destination }

    const startedMs = gate.clock.monotonicMs()
    const identified = gate.identify(request.credentials, request.client)
    const who = identified instanceof Promise ? await identified : identified
    const identifiedMs = gate.clock.monotonicMs()
    const identityMs = identifiedMs - startedMs
    if (!who.ok) return { ...who, destination, times: { startedMs, identityMs } }
    const { identity } = who

    const found = gate.layersFor(identity)
    const layers = found instanceof Promise ? await found : found
    const network = gate.network()
    const named = judgeName(layers, destination, network)
    const times = { startedMs, identityMs, policyMs: gate.clock.monotonicMs() - identifiedMs }
    const policyVersion = layers.version
    if (named.effective === 'deny')
      return { ok: false, reason: named.reason, destination, identity, policyVersion, verdict: named, times }

    const admission = gate.limits.admit(identity)
    if (!admission.ok) return { ...admission, destination, identity, policyVersion, verdict: named, times }
    place = admission.place
    const judging = judgeAddresses(gate, layers, destination, network, named)
    const judged = judging instanceof Promise ? await judging : judging
    if ('reason' in judged) {
      const progress = { destination, identity, policyVersion, verdict: named, times, ...judged.progress }
      return { ...progress, ok: false, reason: judged.reason }
    }
    const authorized: Authorized = {
      ok: true,
      destination,
      identity,
      policyVersion,
      verdict: judged.allow,
      resolved: judged.progress.resolved,
      dnsMs: judged.progress.dnsMs,
      times,
      permit: judged.allow.permit,
      decidedBy: { layers, network },
      place,
      expiresAtMs: who.tunnelExpiresAtMs,
    }
    const lost = authorized.dnsMs === undefined ? undefined : await lostSince(gate, authorized)
    if (lost) return lost
    isKept = true
    return authorized
  } catch (error) {
    return refuseFault(gate, request, error)
  } finally {
    if (!isKept) place?.release()
  }
}

/** Writes down a refusal and gives it back; one that can't be written is a refusal all the same. */
export async function recordRefusal(gate: Gate, request: ConnectionRequest, refusal: Refusal): Promise<Refusal> {
  await recordOutcome(gate, request, refusal)
  return refusal
}

/** Writes down what became of a request, and tells who counts; whether it may go out, which only a line in the log (or `onFailure: allow`) permits. */
export async function recordOutcome(
  gate: Gate,
  request: ConnectionRequest,
  outcome: Authorized | Refusal,
  dialled?: { readonly address: string; readonly connectMs?: number | undefined },
): Promise<boolean> {
  const entry = outcomeEntry(request, outcome, dialled)
  const written = await gate.audit.write(entry)
  const isOut = outcome.ok && (written || gate.letsOutUnrecorded())
  gate.onOutcome(request, outcome, entry, isOut)
  return isOut
}

function isOpen<R extends { readonly ok: boolean }>(dialled: R): dialled is Extract<R, { readonly ok: true }> {
  return dialled.ok
}

/** The refusal, when a permission was lost since it was given. */
function lostSince(gate: Gate, authorized: Authorized): Refusal | undefined | Promise<Refusal | undefined> {
  const refusalOf = (lost: Lost | undefined): Refusal | undefined =>
    lost && { ...progressOf(authorized), ...lost, ok: false }
  const lost = lostPermission(authorized, gate)
  return lost instanceof Promise ? lost.then(refusalOf) : refusalOf(lost)
}

/** The decision before anything is resolved. That on a literal is the whole of it. */
function judgeName(layers: Layers, destination: Destination, network: NetworkRules): Allow | NameAllow | Deny {
  return destination.kind === 'address'
    ? decideAddresses(layers, destination, [], network)
    : decideName(layers, destination, network)
}

/** Resolves the name once and decides on the very addresses that will be dialled. */
function judgeAddresses(
  gate: Gate,
  layers: Layers,
  destination: Destination,
  network: NetworkRules,
  named: Allow | NameAllow,
): Judged | Promise<Judged> {
  if (destination.kind === 'address')
    return judgedAs('permit' in named ? named : decideAddresses(layers, destination, [], network), {})
  const resolver = gate.resolver()
  if (!resolver) return judgedAs(decideUnresolved(layers, destination, network), {})
  const judgeAll = (resolved: Resolved): Judged => {
    if (!resolved.ok) return { reason: resolved.reason, progress: { dnsMs: resolved.ms } }
    const progress = { resolved: resolved.addresses.map((address) => address.text), dnsMs: resolved.ms }
    return judgedAs(decideAddresses(layers, destination, resolved.addresses, network), progress)
  }
  const resolving = resolver.resolve(destination.host)
  return resolving instanceof Promise ? resolving.then(judgeAll) : judgeAll(resolving)
}

type Judged =
  { readonly allow: Allow; readonly progress: Progress } | { readonly reason: Reason; readonly progress: Progress }

function judgedAs(verdict: Allow | Deny, progress: Progress): Judged {
  return verdict.effective === 'allow'
    ? { allow: verdict, progress }
    : { reason: verdict.reason, progress: { ...progress, verdict } }
}

/** A fault in any step is a refusal with `policy_unavailable`, never a way out. */
function refuseFault(gate: Gate, request: ConnectionRequest, error: unknown): Refusal {
  gate.onFault(request, error)
  return { ok: false, reason: 'policy_unavailable' }
}

function destroyUpstream({ upstream }: { readonly upstream: { readonly destroy: () => void } }): void {
  upstream.destroy()
}

/** What is known of an attempt that policy let out and that fails all the same; not its permit, nor its place. */
export function progressOf(authorized: Authorized): Progress {
  const { destination, identity, policyVersion, verdict, resolved, dnsMs, times } = authorized
  return { destination, identity, policyVersion, verdict, resolved, dnsMs, times }
}
