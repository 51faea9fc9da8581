/** Every example of docs/clients.md is run by a test, and every test of one finds it. */
import fs from 'node:fs'
import { expect, test } from 'vitest'
import { readExamples } from './documented.ts'

const tests = fs
  .readdirSync(import.meta.dirname)
  .filter((name) => name.endsWith('.test.ts') && name !== 'documented.test.ts')
  .map((name) => fs.readFileSync(new URL(name, import.meta.url), 'utf8'))
  .join('\n')
const page = fs.readFileSync(new URL('../../docs/clients.md', import.meta.url), 'utf8')

test('names are unique', () => {
  const names = readExamples().map(({ name }) => name)
  expect(names).toEqual([...new Set(names)])
  expect(names.length).toBeGreaterThan(15)
})

test('every named example is run', () => {
  expect(
    readExamples()
      .map(({ name }) => name)
      .filter((name) => !tests.includes(`'${name}'`)),
  ).toEqual([])
})

test('a block of a language that can be run has a name', () => {
  const fences = [...page.matchAll(/^```(\w+)(.*)$/gm)].filter(([, language]) => language !== 'text')
  expect(fences.filter(([, , name]) => name === '').map(([fence]) => fence)).toEqual([])
})
