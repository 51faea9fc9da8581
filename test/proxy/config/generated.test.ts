import { Ajv2020 } from 'ajv/dist/2020.js'
import { parse } from 'yaml'
import { expect, test } from 'vitest'
import { configFields, configJsonSchema, variableName } from '../../../proxy/config/fields.ts'
import { parseConfigText } from '../../../proxy/config/load.ts'
import { configurationPage } from '../../../scripts/configuration-page.ts'
import { outdatedFiles } from '../../../scripts/generate-docs.ts'

test('the published schema and the page on the configuration are what the code says', async () => {
  expect(await outdatedFiles()).toEqual([])
})

test('every field is described, and stands on the page with its variable', () => {
  const page = configurationPage()
  for (const field of configFields()) {
    expect(field.schema.description, field.path.join('.')).toMatch(/\S/)
    if (field.path[0] !== '$schema') expect(page).toContain(variableName(field.path))
  }
})

test('no two fields share a variable', () => {
  const names = configFields().map((field) => variableName(field.path))
  expect(new Set(names).size).toBe(names.length)
})

test('the example of the page is accepted by the gateway and by the published schema; a misspelt key by neither', () => {
  const example = /```yaml\n(?<yaml>[^]*?)```/.exec(configurationPage())?.groups?.['yaml'] ?? ''
  const validate = new Ajv2020({ strict: false }).compile(configJsonSchema())
  expect(parseConfigText(example, {}).ok).toBe(true)
  expect(validate(parse(example))).toBe(true)
  const misspelt = example.replace('listen:', 'lisen:')
  expect(parseConfigText(misspelt, {}).ok).toBe(false)
  expect(validate(parse(misspelt))).toBe(false)
})
