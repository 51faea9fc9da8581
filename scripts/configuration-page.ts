/** Renders `docs/configuration.md` from the schema of the configuration: every section, every field, its default and its environment variable. */
import { configJsonSchema, variableName, type JsonSchema } from '../proxy/config/fields.ts'

const INTRODUCTION = `# Configuration

<!-- Generated from proxy/config/schema.ts by scripts/generate-docs.ts. Edit the schema. -->

\`sallyport serve --config sallyport.yaml\` reads one YAML (or JSON) file. Every field has a default; an empty file is a gateway that lets nothing out.

- Unknown keys and bad values stop the start. All faults are told at once, each with its line, its path and what would be right; exit code 3.
- \`SIGHUP\` reads the file again. A file that is wrong changes nothing: the last good one stays, and the log says what is wrong.
- Paths are relative to the folder of the file.
- Editors complete and check with [schemas/config.schema.json](../schemas/config.schema.json): put
  \`# yaml-language-server: $schema=node_modules/sallyport/schemas/config.schema.json\` on the first line.
- Each field can be set by the environment variable in its table; it wins over the file. Lists are separated by commas; sections and lists of sections
  are written as YAML or JSON, such as \`SALLYPORT_POLICY_CEILING='{ kind: allow-all }'\`. A misspelt variable stops the start too.
- \`sallyport policy check sallyport.yaml\` tells what is wrong without starting anything.

\`\`\`yaml
listen: { proxy: 127.0.0.1:3128, admin: 127.0.0.1:9090 }
issuers:
  - { issuer: https://host.example, algorithms: [ES256], jwks: https://host.example/jwks.json }
policy:
  ceiling: { kind: allow-all }
  deniedHosts: [metadata.google.internal]
  tenants:
    acme: { kind: static, allowedHosts: [api.github.com, '*.githubusercontent.com', '@pypi'] }
network: { allowPrivate: [10.20.0.0/16] }
limits: { perSandbox: { tunnels: 200, newPerSecond: 50, bytesPerDay: 5GiB } }
\`\`\`
`

/** The whole page. */
export function configurationPage(): string {
  const schema = configJsonSchema()
  const sections = Object.entries(schema.properties ?? {}).filter(([name]) => name !== '$schema')
  const plain = sections.filter(([, section]) => section.properties === undefined && section.items === undefined)
  const parts = [
    INTRODUCTION,
    ...sections.filter((entry) => !plain.includes(entry)).map(([name, section]) => renderSection([name], section)),
  ]
  parts.splice(2, 0, ...plain.map(([name, field]) => `## \`${name}\`\n\n${renderTable([name], { [name]: field }, [])}`))
  return `${parts.join('\n').trimEnd()}\n`
}

function renderSection(path: readonly string[], section: JsonSchema): string {
  const title = `${'#'.repeat(Math.min(path.length + 1, 4))} \`${path.join('.')}\``
  const lines = [title, '', section.description ?? '', '']
  if (section.items?.properties !== undefined) {
    lines.push(`A list; as a whole: \`${variableName(path)}\`. Each entry:`, '')
    lines.push(renderTable([`${path.join('.')}[]`], section.items.properties, section.items.required ?? [], false))
    lines.push(...nested([`${path.join('.')}[]`], section.items.properties, false))
    return lines.join('\n')
  }
  const properties = section.properties ?? {}
  lines.push(renderTable(path, properties, section.required ?? []))
  lines.push(...nested(path, properties, true))
  return lines.join('\n')
}

function nested(
  path: readonly string[],
  properties: Readonly<Record<string, JsonSchema>>,
  overridable: boolean,
): readonly string[] {
  return Object.entries(properties).flatMap(([name, property]) => {
    if (property.properties !== undefined && overridable) return [renderSection([...path, name], property)]
    const shapes = shapesOf(property)
    return shapes.length === 0 ? [] : [renderShapes(path, name, property, shapes)]
  })
}

/** What stands below a field that is not a plain section: the members of alternatives, of records, of a nested entry. */
function renderShapes(
  path: readonly string[],
  name: string,
  property: JsonSchema,
  shapes: readonly JsonSchema[],
): string {
  const isRecord = property.additionalProperties !== undefined && typeof property.additionalProperties === 'object'
  const isList = property.items !== undefined
  const lines = [
    `${'#'.repeat(Math.min(path.length + 2, 4))} \`${[...path, name].join('.')}${isRecord ? '.<name>' : isList ? '[]' : ''}\``,
    '',
  ]
  if (name === 'tenants') return [...lines, 'Like `policy.ceiling`.', ''].join('\n')
  for (const shape of shapes) {
    const kind = shape.properties?.['kind']?.const
    const members = Object.fromEntries(Object.entries(shape.properties ?? {}).filter(([key]) => key !== 'kind'))
    if (kind !== undefined)
      lines.push(`\`kind: ${JSON.stringify(kind).replaceAll('"', '')}\`. ${shape.description ?? ''}`, '')
    if (Object.keys(members).length > 0) lines.push(renderTable(path, members, shape.required ?? [], false))
  }
  return lines.join('\n')
}

function shapesOf(property: JsonSchema): readonly JsonSchema[] {
  if (property.properties !== undefined) return [property]
  const inner =
    typeof property.additionalProperties === 'object' ? property.additionalProperties : (property.items ?? property)
  if (inner !== property && inner.properties !== undefined) return [inner]
  return [...(inner.anyOf ?? []), ...(inner.oneOf ?? [])].filter((shape) => shape.properties !== undefined)
}

function renderTable(
  path: readonly string[],
  properties: Readonly<Record<string, JsonSchema>>,
  required: readonly string[],
  overridable = true,
): string {
  const fields = Object.entries(properties).filter(
    ([, property]) => !(overridable && property.properties !== undefined),
  )
  if (fields.length === 0) return ''
  const heading = overridable ? ['field', 'default', 'meaning', 'variable'] : ['field', 'default', 'meaning']
  const rows = fields.map(([name, property]) => {
    const fallback = required.includes(name)
      ? 'required'
      : property.default === undefined
        ? ''
        : `\`${JSON.stringify(property.default)}\``
    const full = path.length === 1 && path[0] === name ? [name] : [...path, name]
    const cells = [`\`${name}\``, fallback.replaceAll('"', ''), describe(property)]
    return overridable ? [...cells, `\`${variableName(full)}\``] : cells
  })
  return (
    [heading, heading.map(() => '---'), ...rows]
      .map((cells) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`)
      .join('\n') + '\n'
  )
}

function describe(property: JsonSchema): string {
  const choices = [
    property,
    ...(property.anyOf ?? []),
    ...(property.items === undefined ? [] : [property.items]),
  ].flatMap((schema) => schema.enum ?? [])
  const oneOf = choices.length === 0 ? '' : ` One of ${choices.map((choice) => `\`${String(choice)}\``).join(', ')}.`
  return `${property.description ?? ''}${oneOf}`
}
