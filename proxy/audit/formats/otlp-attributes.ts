/** Fields of an audit line as attributes of OpenTelemetry. */

/** An attribute in the JSON of OTLP. */
export interface OtlpAttribute {
  readonly key: string
  readonly value:
    | { readonly stringValue: string }
    | { readonly intValue: string }
    | { readonly doubleValue: number }
    | { readonly arrayValue: { readonly values: readonly { readonly stringValue: string }[] } }
}

/** Those of which OpenTelemetry has a name of its own. @see https://opentelemetry.io/docs/specs/semconv/registry/attributes/server/ */
const KNOWN: Readonly<Record<string, string>> = { host: 'server.address', port: 'server.port' }

/** The fields that are there, in the order of `names`; the name of the log below `sallyport.` where there is no other. */
export function otlpAttributes(
  fields: Readonly<Record<string, unknown>>,
  names: readonly string[],
): readonly OtlpAttribute[] {
  return names.flatMap((name) => {
    const value = valueOf(fields[name])
    return value === undefined ? [] : [{ key: KNOWN[name] ?? `sallyport.${name}`, value }]
  })
}

function valueOf(value: unknown): OtlpAttribute['value'] | undefined {
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'number')
    return Number.isSafeInteger(value) ? { intValue: String(value) } : { doubleValue: value }
  if (!Array.isArray(value)) return undefined
  const texts = value.filter((item) => typeof item === 'string')
  return { arrayValue: { values: texts.map((stringValue) => ({ stringValue })) } }
}

/** The moment in the nanoseconds that OTLP wants, as text; it is known to a microsecond at best. */
export function otlpTime(ms: number): string {
  return `${Math.max(0, Math.round(ms * 1000))}000`
}
