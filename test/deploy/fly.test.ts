/** deploy/fly: the gateway's configuration is one, both files agree on the port, and the image gets what its init wants. */
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'
import { parse } from 'yaml'
import { parseConfig } from '../../proxy/config/parse.ts'

const FOLDER = path.join(import.meta.dirname, '../../deploy/fly')
const read = (file: string): string => fs.readFileSync(path.join(FOLDER, file), 'utf8')

test('the configuration of the gateway can be read, and listens where the service sends to', () => {
  const parsed = parseConfig(parse(read('gateway/sallyport.yaml')), { folder: '/etc/sallyport' })
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.faults))
  const toml = read('gateway/fly.toml')
  expect(toml.match(/^(internal_port|port) = 3128$/gm)).toHaveLength(2)
  expect(JSON.stringify(parsed.config.listen)).toContain('3128')
  // Neither TLS nor HTTP is looked into on the way, and the control API is not published.
  expect(toml).not.toMatch(/^handlers|9090/m)
})

test('the files that fly.toml names are there, but for the keys, which are yours', () => {
  const named = [...read('gateway/fly.toml').matchAll(/^local_path = '(.*)'$/gm)].map(([, file = '']) => file)
  expect(named).toHaveLength(2)
  const root = path.join(FOLDER, '../..')
  expect(named.filter((file) => !fs.existsSync(path.join(root, file)))).toEqual(['deploy/fly/gateway/jwks.json'])
  expect(fs.existsSync(path.join(FOLDER, 'gateway/../../image/Dockerfile'))).toBe(true)
})

test('the image has what its init wants', () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spd-'))
  execFileSync(process.execPath, [path.join(FOLDER, 'sandbox/image-files.ts'), folder])
  const init = read('sandbox/init')
  const dockerfile = read('sandbox/Dockerfile')
  const wanted = [...init.matchAll(/\$own\/([a-z.]+)/g)].map(([, name = '']) => name)
  expect(new Set(wanted)).toEqual(new Set(['worker.cjs', 'filter.bpf', 'node']))
  for (const name of ['worker.cjs', 'filter.bpf', 'init'])
    expect(fs.statSync(path.join(folder, name)).size).toBeGreaterThan(100)
  expect(fs.statSync(path.join(folder, 'init')).mode & 0o777).toBe(0o755)
  expect(dockerfile).toContain('/opt/sallyport/node')
  for (const program of ['bubblewrap', 'nftables', 'util-linux']) expect(dockerfile).toContain(program)
  fs.rmSync(folder, { recursive: true })
})
