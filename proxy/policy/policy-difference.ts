/** What changes when one policy takes the place of another: entries that appear and vanish. Pure. */
import type { Steps } from '../../policies/index.ts'
import type { TenantLayer } from './kept-tenants.ts'
import type { FileChange } from './tenant-files/file-layers.ts'

/** Entries in canonical form. */
export interface EntryDifference {
  readonly appear: readonly string[]
  readonly vanish: readonly string[]
}

/** The difference; `null` stands for no policy at all, which denies. */
export interface PolicyDifference {
  readonly kind: { readonly from: string | null; readonly to: string | null }
  readonly mode: { readonly from: string | null; readonly to: string | null }
  readonly allowedHosts: EntryDifference
  readonly deniedHosts: EntryDifference
}

/** Entries that are compared in about a quarter of a millisecond. */
const A_STEP = 1000

/** Compares, in steps: lists may be long. */
export function* policyDifferenceSteps(
  from: TenantLayer | undefined,
  to: TenantLayer | undefined,
): Steps<PolicyDifference> {
  return {
    kind: { from: kindOf(from), to: kindOf(to) },
    mode: { from: from?.mode ?? null, to: to?.mode ?? null },
    allowedHosts: yield* entries(listOf(from, 'allowedHosts'), listOf(to, 'allowedHosts')),
    deniedHosts: yield* entries(listOf(from, 'deniedHosts'), listOf(to, 'deniedHosts')),
  }
}

/** Entries that an audit line has room for. */
const SHOWN = 32

/** The same for an audit line: one list of what appears and one of what vanishes, denials with `!` in front, and the rest in words. */
export function differenceForAudit({ kind, mode, allowedHosts, deniedHosts }: PolicyDifference): {
  readonly added: readonly string[]
  readonly removed: readonly string[]
  readonly detail: string
} {
  const shown = (allowed: readonly string[], denied: readonly string[]) =>
    [...allowed.slice(0, SHOWN), ...denied.slice(0, SHOWN).map((entry) => `!${entry}`)].slice(0, SHOWN)
  const appear = allowedHosts.appear.length + deniedHosts.appear.length
  const vanish = allowedHosts.vanish.length + deniedHosts.vanish.length
  const step = (name: string, one: { from: string | null; to: string | null }): string =>
    one.from === one.to ? '' : `, ${name} ${one.from ?? 'none'} to ${one.to ?? 'none'}`
  return {
    added: shown(allowedHosts.appear, deniedHosts.appear),
    removed: shown(allowedHosts.vanish, deniedHosts.vanish),
    detail: `${appear} appear, ${vanish} vanish${step('kind', kind)}${step('mode', mode)}`,
  }
}

/** What an audit line says of a tenant whose file made another policy of it, in steps. */
export function* fileChangeForAudit({ tenant, before, after, version }: FileChange) {
  return {
    action: after === undefined ? 'policy_file_removed' : 'policy_file',
    tenant,
    policy_version: version,
    ...differenceForAudit(yield* policyDifferenceSteps(before, after)),
  }
}

/** The name of a named policy is part of what it is. */
function kindOf(layer: TenantLayer | undefined): string | null {
  if (layer === undefined) return null
  return layer.kind === 'named' ? `named ${layer.name}` : layer.kind
}

function listOf(layer: TenantLayer | undefined, name: 'allowedHosts' | 'deniedHosts'): readonly string[] {
  return layer?.kind === 'static' ? (layer[name] ?? []) : []
}

function* entries(from: readonly string[], to: readonly string[]): Steps<EntryDifference> {
  if (from === to) return { appear: [], vanish: [] }
  return { appear: yield* missingIn(from, to), vanish: yield* missingIn(to, from) }
}

/** Those of `list` that `others` does not have. */
function* missingIn(others: readonly string[], list: readonly string[]): Steps<readonly string[]> {
  const known = Array.from({ length: PARTS }, () => new Set<string>())
  const missing: string[] = []
  for (const [at, entry] of others.entries()) {
    known[partOf(entry)]?.add(entry)
    if (at % A_STEP === 0) yield
  }
  for (const [at, entry] of list.entries()) {
    if (known[partOf(entry)]?.has(entry) !== true) missing.push(entry)
    if (at % A_STEP === 0) yield
  }
  return missing
}

/** A set that grows is made anew as a whole, which takes tens of milliseconds for a long one: so it is many small ones. */
const PARTS = 64

function partOf(entry: string): number {
  let sum = entry.length
  for (let at = 0; at < entry.length && at < 16; at++) sum = (sum * 31 + entry.charCodeAt(at)) % 65_521
  return sum % PARTS
}
