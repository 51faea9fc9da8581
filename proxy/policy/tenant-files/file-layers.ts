/** The layers of tenants that files hold: the last good one of each, what is wrong with a file now, and what changed since somebody asked. */
import { type Checked, finish, type Steps } from '../../../policies/index.ts'
import { type CheckedTenantLayer, type TenantLayer, UNAVAILABLE_LAYER } from '../kept-tenants.ts'
import type { ModalCell } from '../operator-policies.ts'

/** Something wrong with a file, or with the folder. */
export interface FileFault {
  readonly path: string
  /** Absent where it is nobody's. */
  readonly tenant?: string
  /** One line; it holds nothing of the file but what is wrong with an entry. */
  readonly message: string
}

/** A tenant's policy became another one. */
export interface FileChange {
  readonly tenant: string
  readonly before: TenantLayer | undefined
  readonly after: TenantLayer | undefined
  /** Of the one after. */
  readonly version: string | undefined
}

/** What the layers are made with. */
export interface FileLayersOptions {
  readonly check: (policy: unknown) => Steps<Checked<CheckedTenantLayer>>
  /** Told of each fault once, until it is another one. */
  readonly onFault: (fault: FileFault) => void
  /** The layer that a tenant had before the files were opened again, for one whose file is bad now. */
  readonly lastGood?: ((tenant: string) => TenantLayer | undefined) | undefined
}

interface Known {
  readonly layer: CheckedTenantLayer | undefined
}

/** Keeps them. */
export class FileLayers {
  readonly #options: FileLayersOptions
  readonly #known = new Map<string, Known>()
  readonly #faults = new Map<string, FileFault>()
  #changes: FileChange[] = []
  /** Whether the files were out of reach for too long: then nobody has a policy. */
  #isStale = false
  #hasChanged = false

  constructor(options: FileLayersOptions) {
    this.#options = options
  }

  /** The layer of a tenant; `undefined` for one without a file. */
  get(tenant: string): ModalCell | undefined {
    const known = this.#known.get(tenant)
    if (known === undefined) return undefined
    return this.#isStale ? UNAVAILABLE_LAYER : (known.layer?.cell ?? UNAVAILABLE_LAYER)
  }

  /** As data; also while the files are out of reach. */
  layer(tenant: string): TenantLayer | undefined {
    return this.#known.get(tenant)?.layer?.layer
  }

  tenants(): readonly string[] {
    return [...this.#known.keys()]
  }

  faults(): readonly FileFault[] {
    return [...this.#faults.values()]
  }

  get isStale(): boolean {
    return this.#isStale
  }

  /** Takes what a file holds: a layer, or what is wrong with it; then the last good one stays, and a tenant without one has no policy. */
  *put(tenant: string, path: string, policy: unknown): Steps<void> {
    const checked = yield* this.#options.check(policy)
    if (!checked.ok) {
      const [first] = checked.faults
      const where = first === undefined || first.path === '' ? '' : `${first.path}: `
      this.fail({ path, tenant, message: `${where}${first?.message ?? 'is no policy'}` })
      return
    }
    this.#faults.delete(keyOf({ path, tenant }))
    const before = this.#known.get(tenant)
    this.#known.set(tenant, { layer: checked.value })
    if (before?.layer?.version !== checked.value.version) this.#note(tenant, before?.layer, checked.value)
  }

  /** A file that can't be used. */
  fail(fault: FileFault): void {
    const key = keyOf(fault)
    if (this.#faults.get(key)?.message !== fault.message) this.#options.onFault(fault)
    this.#faults.set(key, fault)
    const { tenant } = fault
    if (tenant === undefined || this.#known.has(tenant)) return
    const lastGood = this.#options.lastGood?.(tenant)
    const checked = lastGood && finish(this.#options.check(lastGood))
    this.#known.set(tenant, { layer: checked?.ok === true ? checked.value : undefined })
    this.#hasChanged = true
  }

  /** What was wrong with a file that is nobody's, or everybody's, is no more. */
  mend(path: string): void {
    this.#faults.delete(keyOf({ path }))
  }

  /** The file of a tenant is gone: nobody gave it a policy. */
  remove(tenant: string): void {
    const before = this.#known.get(tenant)
    this.#faults.delete(keyOf({ path: '', tenant }))
    if (before === undefined) return
    this.#known.delete(tenant)
    this.#note(tenant, before.layer, undefined)
  }

  /** All are out of reach for too long, or back. */
  setStale(isStale: boolean): void {
    if (this.#isStale === isStale) return
    this.#isStale = isStale
    this.#hasChanged = true
  }

  /** What changed since the last call; `undefined` when nothing did. */
  takeChanges(): readonly FileChange[] | undefined {
    if (!this.#hasChanged) return undefined
    const changes = this.#changes
    this.#changes = []
    this.#hasChanged = false
    return changes
  }

  #note(tenant: string, before: CheckedTenantLayer | undefined, after: CheckedTenantLayer | undefined): void {
    this.#hasChanged = true
    this.#changes.push({ tenant, before: before?.layer, after: after?.layer, version: after?.version })
  }
}

/** A tenant has one fault at a time, whichever of its files it is about. */
function keyOf({ path, tenant }: Pick<FileFault, 'path' | 'tenant'>): string {
  return tenant === undefined ? `file ${path}` : `tenant ${tenant}`
}
