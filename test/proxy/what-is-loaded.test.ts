import { execFile } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const ROOT = path.join(import.meta.dirname, '../..')

/** What a program of its own has loaded of packages, and of Node's own `fetch`, after it ran `body`. */
async function loadedBy(body: string): Promise<readonly string[]> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-loaded-'))
  try {
    const program = `
      import { registerHooks } from 'node:module'
      const loaded = new Set()
      registerHooks({ load: (url, context, next) => {
        const name = /\\/node_modules\\/((?:@[^/]+\\/)?[^/]+)\\/(?!.*\\/node_modules\\/)/.exec(url)?.[1]
        if (name !== undefined) loaded.add(name)
        return next(url, context)
      } })
      const folder = ${JSON.stringify(folder)}
      const { createGateway, parseConfig } = await import(${JSON.stringify(path.join(ROOT, 'proxy/index.ts'))})
      const open = (listen) => createGateway({
        config: parseConfig({ state: folder + '/state', listen }, { folder }).config,
        logger: { info() {}, warn() {}, error() {} },
        machineSets: { sets: { npm: [], apt: [] }, notes: [] },
      })
      ${body}
      if (process.moduleLoadList.includes('NativeModule internal/deps/undici/undici')) loaded.add('fetch')
      console.log(JSON.stringify([...loaded].sort()))`
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], {
      env: { PATH: process.env['PATH'] },
    })
    return JSON.parse(stdout) as readonly string[]
  } finally {
    fs.rmSync(folder, { recursive: true })
  }
}

test('a gateway for the sandboxes of one process loads what it needs, and no server, logger, token or YAML library', async () => {
  const loaded = await loadedBy(`
    const gateway = await open({ proxy: 'off', admin: 'off' })
    await gateway.bind({ path: folder + '/socket', identity: { sandbox: 'sbx_one' } })
    await gateway.close()`)
  expect(loaded).toEqual(['punycode', 'tldts', 'tr46', 'zod'])
})

test('one with an admin listener and keys loads the rest', async () => {
  const loaded = await loadedBy(`
    const { openKeys } = await import(${JSON.stringify(path.join(ROOT, 'proxy/index.ts'))})
    const { mkdirSync } = await import('node:fs')
    mkdirSync(folder + '/state', { mode: 0o700 })
    await (await openKeys(folder + '/state')).rotate()
    const gateway = await open({ proxy: '127.0.0.1:0', admin: '127.0.0.1:0' })
    await gateway.listen()
    await gateway.close()`)
  expect(loaded).toEqual(expect.arrayContaining(['fastify', 'jose', 'prom-client']))
})
