/** Files: whole, of any size and name, and never outside of where they belong. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import type { Sandbox } from '../sandbox.ts'
import type { ConformanceArea } from './check.ts'
import { onNode } from './clients.ts'
import { rejectsWith } from './lifecycle.ts'

const HARD_NAMES = ['line\nfeed', 'tab\tbed', "it's", '"quoted"', ' spaces ', '-rf', '$HOME', 'é€😀', '#', 'a\\b', '*']
const LARGE_PIECES = 32
const PIECE = Buffer.alloc(1024 * 1024, 'sallyport ')

/** A folder of the host for one check. */
async function withHostFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'sallyport-check-'))
  try {
    await use(folder)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function text(sandbox: Sandbox, file: string): Promise<string> {
  return Buffer.from(await sandbox.readFile(file)).toString()
}

/** The checks. */
export const files: ConformanceArea = {
  name: 'files',
  checks: [
    {
      name: 'what was written is read back, byte by byte, and replaced whole',
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        const bytes = Uint8Array.from({ length: 256 }, (_, index) => index)
        await inside.writeFile('deep/er/bytes', bytes)
        assert.deepEqual(Buffer.from(await inside.readFile('deep/er/bytes')), Buffer.from(bytes))
        await inside.writeFile('deep/er/bytes', 'short')
        assert.equal(await text(inside, `${inside.rootDir}/deep/er/bytes`), 'short')
        await inside.writeFile('empty', '')
        assert.equal(await text(inside, 'empty'), '')
        await rejectsWith(inside.readFile('nothing-here'), 'SALLYPORT_SANDBOX_FILE_FAILED')
        await inside.remove('deep')
        await inside.remove('empty')
      },
    },
    {
      name: 'names of any kind are listed, with their sizes',
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        for (const [index, name] of HARD_NAMES.entries()) await inside.writeFile(`names/${name}`, 'x'.repeat(index))
        const expected = HARD_NAMES.map((name, size) => ({ path: `${inside.rootDir}/names/${name}`, size }))
        const byPath = (a: { readonly path: string }, b: { readonly path: string }): number =>
          a.path < b.path ? -1 : 1
        assert.deepEqual(
          [...(await inside.listFiles('names'))].map(({ path: each, size }) => ({ path: each, size })).sort(byPath),
          expected.sort(byPath),
        )
        for (const name of HARD_NAMES)
          assert.equal((await inside.readFile(`names/${name}`)).length, HARD_NAMES.indexOf(name))
        await inside.remove('names')
      },
    },
    {
      name: 'a name that is not UTF-8 is listed, and leads back to its file',
      run: async ({ sandbox, subject }) => {
        const inside = await sandbox()
        const script =
          'const fs = require("node:fs"); fs.mkdirSync("bytes"); fs.writeFileSync(Buffer.concat([Buffer.from("bytes/"), Buffer.from([0x61, 0xff, 0xfe])]), "odd")'
        // Some file systems take no such names.
        const { exitCode } = await inside.exec(...onNode(subject, ['-e', script]))
        if (exitCode === 0) {
          const [file] = await inside.listFiles('bytes')
          assert.equal(await text(inside, file?.path ?? ''), 'odd')
        }
        await inside.remove('bytes')
      },
    },
    {
      name: 'a list holds regular files alone, of folders below too, and nothing of a folder that is not there',
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        await inside.exec(
          'mkdir -p tree/a/b tree/empty && echo 1 > tree/one && echo 22 > tree/a/b/two && ln -s one tree/link && ln -s / tree/root && mkfifo tree/pipe || true',
        )
        const listed = (await inside.listFiles('tree')).map((file) => [
          path.posix.relative(`${inside.rootDir}/tree`, file.path),
          file.size,
        ])
        assert.deepEqual(listed.sort(), [['a/b/two', 3], ['one', 2]]) // prettier-ignore
        assert.deepEqual(await inside.listFiles('no-such-folder'), [])
        await inside.remove('tree')
      },
    },
    {
      name: 'large files go in and out as streams',
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        const expected = createHash('sha256')
        await inside.writeFile(
          'large',
          (async function* () {
            for (let piece = 0; piece < LARGE_PIECES; piece++) {
              expected.update(PIECE)
              yield await Promise.resolve(PIECE)
            }
          })(),
        )
        const got = createHash('sha256')
        let size = 0
        for await (const chunk of inside.readFileStream('large')) {
          got.update(chunk)
          size += chunk.length
        }
        assert.equal(size, LARGE_PIECES * PIECE.length)
        assert.equal(got.digest('hex'), expected.digest('hex'))
        await inside.remove('large')
      },
    },
    {
      name: 'things are looked at, made, moved and removed',
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        assert.equal(await inside.stat('made'), undefined)
        await inside.mkdir('made/below')
        await inside.mkdir('made/below')
        assert.partialDeepStrictEqual(await inside.stat('made'), { kind: 'directory', path: `${inside.rootDir}/made` })
        await inside.writeFile('made/file', '12345')
        await inside.move('made/file', 'made/below/moved')
        assert.equal(await inside.stat('made/file'), undefined)
        const stat = await inside.stat('made/below/moved')
        assert.partialDeepStrictEqual(stat, { kind: 'file', size: 5 })
        assert.ok(Math.abs((stat?.modifiedMs ?? 0) - Date.now()) < 600_000)
        await inside.remove('made')
        await inside.remove('made')
        assert.equal(await inside.stat('made/below/moved'), undefined)
      },
    },
    {
      name: 'no link and no dots lead file requests out of the folders that they are for',
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        await inside.exec('ln -s /etc/passwd link; ln -s /etc out; mkdir real; ln -s ../out real/twice')
        const up = '../'.repeat(12)
        for (const each of [
          'link',
          'out/passwd',
          'real/twice/passwd',
          `${up}etc/passwd`,
          '/etc/passwd',
          '/proc/self/environ',
        ]) {
          await rejectsWith(inside.readFile(each), 'SALLYPORT_SANDBOX_FILE_FAILED')
        }
        for (const each of ['out/sallyport-check', `${up}etc/sallyport-check`])
          await rejectsWith(inside.writeFile(each, 'x'), 'SALLYPORT_SANDBOX_FILE_FAILED')
        await rejectsWith(inside.remove('out/passwd'), 'SALLYPORT_SANDBOX_FILE_FAILED')
        await inside.remove('link')
        await inside.remove('out')
        await inside.remove('real')
      },
    },
    {
      name: 'folders are copied in and out; a link to elsewhere is left out both ways',
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        await withHostFolder(async (folder) => {
          await mkdir(path.join(folder, 'in/sub'), { recursive: true })
          await writeFile(path.join(folder, 'in/sub/run.sh'), '#!/bin/sh\necho copied\n', { mode: 0o755 })
          await writeFile(path.join(folder, 'in/line\nfeed'), 'odd')
          await writeFile(path.join(folder, 'secret'), 'of the host')
          await symlink('../secret', path.join(folder, 'in/escape'))
          await symlink('line\nfeed', path.join(folder, 'in/inner'))
          await inside.copyIn(path.join(folder, 'in'), 'copied')
          assert.equal((await inside.exec('./copied/sub/run.sh', [])).stdout, 'copied\n')
          assert.equal(await text(inside, 'copied/inner'), 'odd')
          assert.equal(await inside.stat('copied/escape'), undefined)

          await inside.exec('ln -s /etc/passwd copied/passwd; ln -s /etc copied/etc')
          await inside.copyOut('copied', path.join(folder, 'out'))
          assert.deepEqual((await readdir(path.join(folder, 'out'))).sort(), ['inner', 'line\nfeed', 'sub'])
          assert.equal(await readFile(path.join(folder, 'out/line\nfeed'), 'utf8'), 'odd')
          assert.equal((await lstat(path.join(folder, 'out/sub/run.sh'))).mode & 0o777, 0o755)
          await inside.copyOut('copied/inner', path.join(folder, 'one'))
          assert.equal(await readFile(path.join(folder, 'one'), 'utf8'), 'odd')
          await rejectsWith(inside.copyOut('nothing-here', path.join(folder, 'two')), 'SALLYPORT_SANDBOX_FILE_FAILED')
        })
        await inside.remove('copied')
      },
    },
  ],
}
