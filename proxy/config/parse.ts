/** Turns a document (what YAML or JSON said) and the environment into a {@link Config}, or into every fault at once. Pure; opens nothing. */
import { isAbsolute, resolve } from 'node:path'
import { resolveAuditFiles } from './audit-files.ts'
import { checkMeaning, type MeaningContext } from './check.ts'
import { applyOverrides, readOverrides, type Environment, type Override } from './environment.ts'
import { describeIssues, pathText, valueAt, type ConfigFault, type RawFault } from './faults.ts'
import { configSchema, type Config } from './schema.ts'

/** The outcome of reading a configuration: all of it, or all that is wrong with it. */
export type ParsedConfig =
  { readonly ok: true; readonly config: Config } | { readonly ok: false; readonly faults: readonly ConfigFault[] }

/** What a document is read with. */
export interface ParseOptions extends MeaningContext {
  /** Overrides by variable name; default none. */
  readonly environment?: Environment
  /** Absolute folder that relative paths start from; default: they stay as they are. */
  readonly folder?: string
}

/** Places tried before giving up on finding further faults; each round takes the faulty parts out and looks again. */
const MAX_ROUNDS = 8

/** Reads a whole configuration. `null` and `undefined` (an empty file) are a configuration of defaults. */
export function parseConfig(document: unknown, options: ParseOptions = {}): ParsedConfig {
  const { overrides, misspelt } = readOverrides(options.environment ?? {})
  const whole = applyOverrides(document ?? {}, overrides)
  const faults: ConfigFault[] = misspelt.map(({ variable, hint }) => ({
    code: 'unknown_variable',
    path: '',
    variable,
    message: 'no such setting',
    hint,
  }))
  const { config, found } = parseAll(whole, options)
  for (const { keys, ...fault } of found) faults.push(placed(fault, keys, overrides))
  if (config === undefined || faults.length > 0) return { ok: false, faults }
  return { ok: true, config: options.folder === undefined ? config : resolvePaths(config, options.folder) }
}

/**
 * The schema stops at the first kind of fault of a section: what is only wrong in the light of the rest is then not looked at. So the faulty parts are
 * taken out and the rest is checked again, until it holds; what a removal itself causes (a field that is missing now) is not told.
 */
function parseAll(
  whole: unknown,
  context: MeaningContext,
): { readonly config?: Config; readonly found: readonly RawFault[] } {
  const found: RawFault[] = []
  const removed: (readonly PropertyKey[])[] = []
  let document: unknown = whole
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const result = configSchema.safeParse(document)
    if (result.success) {
      const config: Config = result.data
      found.push(...checkMeaning(config, context).filter((fault) => !isAftermath(fault.keys, removed)))
      return { config, found }
    }
    const fresh = describeIssues(result.error.issues, document)
    found.push(...fresh.filter((fault) => !isAftermath(fault.keys, removed)))
    const places = fresh.map((fault) => fault.keys)
    if (places.some((keys) => keys.length === 0)) return { found }
    for (const keys of places) {
      const path = removable(document, keys)
      document = without(document, path)
      removed.push(path, keys)
    }
  }
  return { found }
}

/** Whether a fault is at, or around, something that was taken out before. */
function isAftermath(keys: readonly PropertyKey[], removed: readonly (readonly PropertyKey[])[]): boolean {
  return removed.some((gone) => keys.every((key, index) => gone[index] === key))
}

/** Where to take out what is wrong at a path: what is missing already, or an item of a list, takes along what holds it. */
function removable(document: unknown, keys: readonly PropertyKey[]): readonly PropertyKey[] {
  for (let length = keys.length; length > 0; length -= 1) {
    const holder = valueAt(document, keys.slice(0, length - 1))
    const last = keys[length - 1]
    if (last !== undefined && isRecord(holder) && !Array.isArray(holder) && Object.hasOwn(holder, last))
      return keys.slice(0, length)
  }
  return keys
}

/** A copy without the value at a path. Only what lies on the path is copied: two places of a file may share a value by an alias. */
function without(document: unknown, [key, ...rest]: readonly PropertyKey[]): unknown {
  if (key === undefined || !isRecord(document)) return document
  const copy = (Array.isArray(document) ? [...(document as unknown[])] : { ...document }) as Record<
    PropertyKey,
    unknown
  >
  if (rest.length === 0) Reflect.deleteProperty(copy, key)
  else copy[key] = without(copy[key], rest)
  return copy
}

function isRecord(value: unknown): value is Record<PropertyKey, unknown> {
  return typeof value === 'object' && value !== null
}

function placed(
  fault: Omit<ConfigFault, 'path'>,
  keys: readonly PropertyKey[],
  overrides: readonly Override[],
): ConfigFault {
  const override = overrides.find(({ path }) => path.every((name, index) => keys[index] === name))
  return { ...fault, path: pathText(keys), ...(override === undefined ? {} : { variable: override.variable }) }
}

function resolvePaths(config: Config, folder: string): Config {
  const file = (path: string): string => (isAbsolute(path) ? path : resolve(folder, path))
  const listening = <T extends Config['listen']['admin']>(address: T): T =>
    address?.kind === 'unix' ? { ...address, path: file(address.path) } : address
  const { tls, admin, proxy, bound } = config.listen
  const { upstream } = config.network
  const { otlp } = config.tracing
  return {
    ...config,
    state: file(config.state),
    audit: resolveAuditFiles(config.audit, file),
    tracing: {
      ...config.tracing,
      ...(otlp?.authorizationFile !== undefined && {
        otlp: { ...otlp, authorizationFile: file(otlp.authorizationFile) },
      }),
    },
    admin: {
      ...config.admin,
      ...(config.admin.tls && {
        tls: {
          cert: file(config.admin.tls.cert),
          key: file(config.admin.tls.key),
          ...(config.admin.tls.clientCa !== undefined && { clientCa: file(config.admin.tls.clientCa) }),
        },
      }),
      bind: {
        ...config.admin.bind,
        ...(config.admin.bind.folders && { folders: config.admin.bind.folders.map(file) }),
      },
    },
    listen: {
      ...config.listen,
      proxy: proxy.map(listening),
      admin: listening(admin),
      bound: bound.map((one) => ({ ...one, address: listening(one.address) })),
      ...(tls === undefined
        ? {}
        : {
            tls: {
              ...tls,
              cert: file(tls.cert),
              key: file(tls.key),
              ...(tls.clientCa === undefined ? {} : { clientCa: file(tls.clientCa) }),
            },
          }),
    },
    issuers: config.issuers.map((issuer) => ({
      ...issuer,
      ...(issuer.jwks === undefined || /^https?:/i.test(issuer.jwks) ? {} : { jwks: file(issuer.jwks) }),
      ...(issuer.jwksTokenFile === undefined ? {} : { jwksTokenFile: file(issuer.jwksTokenFile) }),
      ...(issuer.secretFile === undefined ? {} : { secretFile: file(issuer.secretFile) }),
    })),
    policy: {
      ...config.policy,
      ...(config.policy.tenantResolver?.tokenFile !== undefined && {
        tenantResolver: { ...config.policy.tenantResolver, tokenFile: file(config.policy.tenantResolver.tokenFile) },
      }),
      ...(config.policy.tenantFiles && {
        tenantFiles: { ...config.policy.tenantFiles, path: file(config.policy.tenantFiles.path) },
      }),
    },
    network: {
      ...config.network,
      ...(upstream === undefined
        ? {}
        : {
            upstream: {
              ...upstream,
              ...(upstream.credentialsFile === undefined ? {} : { credentialsFile: file(upstream.credentialsFile) }),
              ...(upstream.tokenFile === undefined ? {} : { tokenFile: file(upstream.tokenFile) }),
            },
          }),
    },
  }
}
