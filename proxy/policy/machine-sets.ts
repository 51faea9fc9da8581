/** The sets `@npm` and `@apt`: the hosts that this machine's npm and apt are configured for. No host is written down here. */

/** Where to look; everything defaults to this machine and this process. */
export interface MachineSetOptions {
  /** Stands for `/`: `etc/apt/…` and `etc/npmrc` are read below it. */
  readonly root?: string
  /** The home folder, for `.npmrc`. */
  readonly home?: string
  /** The project folder, for `.npmrc`. */
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string | undefined>>
  /** Asked when no file and no variable names a registry: npm's own default, or `undefined` without npm. */
  readonly askNpm?: () => string | undefined
}

/** What was found. */
export interface MachineSets {
  readonly sets: { readonly npm: readonly string[]; readonly apt: readonly string[] }
  /** For the operator, a line each: what could not be read. Never holds a credential. */
  readonly notes: readonly string[]
}

/** Reads the configuration of npm and apt. Never throws. */
export function readMachineSets(_options: MachineSetOptions = {}): MachineSets {
  throw new Error('not built yet')
}
