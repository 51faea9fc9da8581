/** Files through a real worker: any name, any size, and nothing beyond the roots. */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { peakMemory, resetPeakMemory, startWorker, until, type StartedWorker } from './start-worker.ts'

let worker: StartedWorker
let root: string
let readOnly: string
let outside: string

beforeAll(async () => {
  const folder = fs.mkdtempSync('/tmp/sallyport-roots-')
  ;[root, readOnly, outside] = ['rw', 'ro', 'outside'].map((name) => path.join(folder, name)) as [
    string,
    string,
    string,
  ]
  for (const name of [root, readOnly, outside, path.join(root, 'inner-ro')]) fs.mkdirSync(name)
  worker = await startWorker({
    roots: [
      { path: root, writable: true },
      { path: readOnly, writable: false },
      { path: path.join(root, 'inner-ro'), writable: false },
    ],
  })
})
afterAll(async () => {
  await worker[Symbol.asyncDispose]()
  execFileSync('rm', ['-rf', path.dirname(root)])
})
beforeEach(() => {
  // Node's own removal stumbles over names that are not UTF-8.
  execFileSync('find', [root, '-mindepth', '1', '-not', '-path', `${root}/inner-ro*`, '-delete'])
  fs.writeFileSync(path.join(root, 'inner-ro/kept'), 'kept')
  fs.writeFileSync(path.join(outside, 'secret'), 'secret')
  fs.writeFileSync(path.join(readOnly, 'given'), 'given')
})

const { textDecoder, fault } = {
  textDecoder: new TextDecoder(),
  fault: (code: string) => ({ code: 'SALLYPORT_SANDBOX_FILE_FAILED', outcome: 'known', cause: { code } }),
}
const read = async (file: string) => textDecoder.decode(await worker.client.readFile(file))
const strays = () => execFileSync('find', [root, '-name', '.sallyport-*'], { encoding: 'utf8' })

describe('a file', () => {
  it('comes back as it was written, from any path to it', async () => {
    const bytes = new Uint8Array([0, 255, 10, 13, 195, 40])
    await worker.client.writeFile('deep/er/file.bin', bytes)
    expect(await worker.client.readFile('deep/er/file.bin')).toEqual(bytes)
    expect(await worker.client.readFile(`${root}/deep/../deep//er/./file.bin`)).toEqual(bytes)
    await worker.client.writeFile('empty', '')
    expect(await worker.client.readFile('empty')).toEqual(new Uint8Array())
    await worker.client.writeFile('deep/er/file.bin', 'shorter')
    expect(await read('deep/er/file.bin')).toBe('shorter')
  })

  it('keeps its mode when it is written again', async () => {
    fs.writeFileSync(path.join(root, 'tool'), '', { mode: 0o755 })
    await worker.client.writeFile('tool', '#!/bin/sh\n')
    expect(await worker.client.stat('tool')).toMatchObject({
      mode: 0o755,
      kind: 'file',
      size: 10,
      path: `${root}/tool`,
    })
    await worker.client.writeFile('new', '')
    expect(await worker.client.stat('new')).toMatchObject({ mode: 0o644 })
    await worker.client.writeFile('key', 'k', { mode: 0o600 })
    expect(await worker.client.stat('key')).toMatchObject({ mode: 0o600 })
  })

  it('of 300 MB goes in and out in bounded memory, byte for byte', async () => {
    const piece = Buffer.alloc(1024 * 1024)
    const sent = createHash('sha256')
    async function* source() {
      for (let index = 0; index < 300; index++) {
        piece.writeUInt32LE(index)
        sent.update(piece)
        yield Buffer.from(piece)
        await Promise.resolve()
      }
    }
    resetPeakMemory(worker.pid)
    const ownBefore = process.memoryUsage().rss
    await worker.client.writeFile('large', source())
    const received = createHash('sha256')
    let ownPeak = 0
    for await (const chunk of worker.client.readFileStream('large')) {
      received.update(chunk)
      ownPeak = Math.max(ownPeak, process.memoryUsage().rss)
    }
    expect(received.digest('hex')).toBe(sent.digest('hex'))
    expect(peakMemory(worker.pid)).toBeLessThan(160 * 1024 * 1024)
    expect(ownPeak - ownBefore).toBeLessThan(160 * 1024 * 1024)
  }, 120_000)

  it('whose upload breaks off is as it was before', async () => {
    await worker.client.writeFile('precious', 'old')
    const broken = (async function* () {
      yield Buffer.alloc(1024 * 1024)
      await until(() => strays() !== '', 'the upload has begun')
      throw new RangeError('the source is dry')
    })()
    await expect(worker.client.writeFile('precious', broken)).rejects.toThrow(new RangeError('the source is dry'))
    await until(() => strays() === '', 'the half file is gone')
    expect(await read('precious')).toBe('old')
  })

  it('that is being written is not in the list', async () => {
    let seen: unknown
    const slow = (async function* () {
      yield Buffer.alloc(1024 * 1024)
      await until(() => strays() !== '', 'the upload has begun')
      seen = (await worker.client.listFiles()).map((file) => file.path)
    })()
    await worker.client.writeFile('slow', slow)
    expect(seen).toEqual([`${root}/inner-ro/kept`])
  })

  it('that shrinks while it is read breaks the reading', async () => {
    fs.writeFileSync(path.join(root, 'shrinks'), Buffer.alloc(64 * 1024 * 1024))
    const reading = (async () => {
      for await (const chunk of worker.client.readFileStream('shrinks')) {
        fs.truncateSync(path.join(root, 'shrinks'), Math.min(1, chunk.length))
      }
    })()
    await expect(reading).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_CONNECTION_LOST' })
  })
})

describe('names', () => {
  const names = [
    'plain',
    'with space',
    'new\nline',
    'tab\there',
    '"quoted"',
    "it's",
    'per%20cent',
    'a+b&c=d?e#f',
    '-rf',
    'ünï🙂',
    '\u0001\u007f',
    '\\',
    '...',
  ]

  it('of any kind are written, listed, read, moved and removed', async () => {
    for (const name of names) await worker.client.writeFile(`names/${name}`, name)
    const listed = await worker.client.listFiles('names')
    expect(listed.map((file) => file.path).sort()).toEqual(names.map((name) => `${root}/names/${name}`).sort())
    for (const { path: file, size } of listed) {
      expect(size).toBe(Buffer.byteLength(path.basename(file)))
      expect(await read(file)).toBe(path.basename(file))
      await worker.client.move(file, `${file}.moved`)
      await worker.client.remove(`${file}.moved`)
    }
    expect(await worker.client.listFiles('names')).toEqual([])
  })

  it('that are not UTF-8 keep their bytes', async () => {
    const raw = Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0x61, 0xff, 0xc3, 0x28, 0xe2, 0x82])])
    fs.writeFileSync(raw, 'odd')
    const [file] = (await worker.client.listFiles()).filter((entry) => entry.path.startsWith(`${root}/a`))
    expect(file!.path).toBe(`${root}/a\udcff\udcc3(\udce2\udc82`)
    expect(await read(file!.path)).toBe('odd')
    expect(await worker.client.stat(file!.path)).toMatchObject({ path: file!.path, size: 3 })
    await worker.client.writeFile(`${file!.path}\udc80`, 'new')
    expect(fs.readFileSync(Buffer.concat([raw, Buffer.from([0x80])]), 'utf8')).toBe('new')
    await worker.client.remove(file!.path)
    expect(fs.existsSync(raw)).toBe(false)
  })

  it.each([[''], ['a\0b'], ['\ud800'], ['a\udc41']])('that cannot be are a mistake of the caller: %j', async (name) => {
    await expect(worker.client.readFile(name)).rejects.toThrow(TypeError)
    await expect(worker.client.mkdir(name)).rejects.toThrow(TypeError)
  })
})

describe('lists', () => {
  it('hold regular files at any depth, and no links', async () => {
    for (const file of ['b', 'a/1', 'a/2/3']) await worker.client.writeFile(file, file)
    fs.symlinkSync(path.join(outside, 'secret'), path.join(root, 'link'))
    fs.symlinkSync(outside, path.join(root, 'folder-link'))
    fs.symlinkSync('.', path.join(root, 'loop'))
    execFileSync('mkfifo', [path.join(root, 'fifo')])
    await worker.client.mkdir('empty/folder')
    expect(await worker.client.listFiles()).toEqual([
      { path: `${root}/a/1`, size: 3 },
      { path: `${root}/a/2/3`, size: 5 },
      { path: `${root}/b`, size: 1 },
      { path: `${root}/inner-ro/kept`, size: 4 },
    ])
  })

  it('of a folder that is not there are empty, of a file a fault', async () => {
    expect(await worker.client.listFiles('nowhere')).toEqual([])
    await worker.client.writeFile('file', '')
    await expect(worker.client.listFiles('file')).rejects.toMatchObject(fault('ENOTDIR'))
    await expect(worker.client.listFiles(outside)).rejects.toMatchObject(fault('outside'))
  })

  it('of thousands of files are whole', async () => {
    fs.mkdirSync(path.join(root, 'many'))
    for (let index = 0; index < 5_000; index++) fs.writeFileSync(path.join(root, 'many', `file ${index}`), '')
    expect(await worker.client.listFiles('many')).toHaveLength(5_000)
    await worker.client.remove('many')
    expect(fs.existsSync(path.join(root, 'many'))).toBe(false)
  })

  it('of a hostile depth end with a fault, and the worker goes on', async () => {
    await worker.client.execute({ command: 'i=0; while [ $i -lt 400 ]; do mkdir d && cd d || exit; i=$((i+1)); done' })
    await expect(worker.client.listFiles()).rejects.toMatchObject(fault('too_deep'))
    await expect(worker.client.remove('d')).rejects.toMatchObject(fault('too_deep'))
    await worker.client.execute({ command: 'rm', args: ['-rf', 'd'] })
    expect(await worker.client.listFiles()).toHaveLength(1)
  })
})

describe('folders', () => {
  it('are made with those above them, moved and removed whole', async () => {
    await worker.client.mkdir('x/y/z')
    await worker.client.mkdir('x/y/z')
    await worker.client.writeFile('x/y/z/file', '1')
    await worker.client.move('x/y', 'elsewhere/new')
    expect(await read('elsewhere/new/z/file')).toBe('1')
    expect(await worker.client.stat('x/y')).toBeUndefined()
    expect(await worker.client.stat('x')).toMatchObject({ kind: 'directory' })
    await worker.client.remove('elsewhere')
    await worker.client.remove('elsewhere')
    expect(await worker.client.stat('elsewhere/new')).toBeUndefined()
  })

  it('that are in the way are a fault', async () => {
    await worker.client.mkdir('folder')
    await worker.client.writeFile('file', '')
    await expect(worker.client.writeFile('folder', '')).rejects.toMatchObject(fault('EISDIR'))
    await expect(worker.client.readFile('folder')).rejects.toMatchObject(fault('EISDIR'))
    await expect(worker.client.mkdir('file')).rejects.toMatchObject(fault('ENOTDIR'))
    await expect(worker.client.writeFile('file/below', '')).rejects.toMatchObject(fault('ENOTDIR'))
    await expect(worker.client.move('nothing', 'there')).rejects.toMatchObject(fault('ENOENT'))
    await expect(worker.client.readFile('nothing')).rejects.toMatchObject(fault('ENOENT'))
  })

  it('that are roots stay', async () => {
    for (const file of ['.', root, 'inner-ro', `${root}/x/..`])
      await expect(worker.client.remove(file)).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_FILE_FAILED' })
    await expect(worker.client.move('inner-ro', 'other')).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_FILE_FAILED',
    })
    expect(fs.readFileSync(path.join(root, 'inner-ro/kept'), 'utf8')).toBe('kept')
  })
})

describe('the roots', () => {
  const refusedReads = (file: string) => worker.client.readFile(file)
  const writes = (file: string): Record<string, () => Promise<unknown>> => ({
    writeFile: () => worker.client.writeFile(file, 'broken'),
    mkdir: () => worker.client.mkdir(`${file}/new`),
    remove: () => worker.client.remove(file),
    moveFrom: () => worker.client.move(file, 'taken'),
    moveTo: async () => {
      fs.writeFileSync(path.join(root, 'mine'), 'broken')
      await worker.client.move('mine', file)
    },
  })

  it.each([
    ['an absolute path', () => path.join(outside, 'secret')],
    ['dots', () => '../outside/secret'],
    ['a link', () => (fs.symlinkSync(path.join(outside, 'secret'), path.join(root, 'link')), 'link')],
    ['a relative link', () => (fs.symlinkSync('../outside/secret', path.join(root, 'link')), 'link')],
    ['a link to the folder', () => (fs.symlinkSync(outside, path.join(root, 'way')), 'way/secret')],
    [
      'links to links',
      () => {
        fs.symlinkSync(outside, path.join(root, 'two'))
        fs.symlinkSync('two', path.join(root, 'one'))
        return 'one/secret'
      },
    ],
    ['the process itself', () => '/proc/self/environ'],
    ['the process and its root', () => `/proc/self/root${outside}/secret`],
    ['a sibling with the same beginning', () => `${root}-other/secret`],
  ])('cannot be left by %s', async (_how, prepare) => {
    fs.mkdirSync(`${root}-other`, { recursive: true })
    fs.writeFileSync(`${root}-other/secret`, 'secret')
    const file = prepare()
    await expect(refusedReads(file)).rejects.toMatchObject(fault('outside'))
    await expect(worker.client.stat(file)).rejects.toMatchObject(fault('outside'))
    await expect(worker.client.writeFile(file, 'broken')).rejects.toMatchObject(fault('outside'))
    expect(fs.readFileSync(path.join(outside, 'secret'), 'utf8')).toBe('secret')
    expect(fs.readdirSync(outside)).toEqual(['secret'])
  })

  it('hold what a link inside leads to', async () => {
    await worker.client.writeFile('real/file', 'old')
    fs.symlinkSync('real/file', path.join(root, 'link'))
    expect(await read('link')).toBe('old')
    await worker.client.writeFile('link', 'new')
    expect(fs.lstatSync(path.join(root, 'link')).isSymbolicLink()).toBe(true)
    expect(await read('real/file')).toBe('new')
    await worker.client.remove('link')
    expect(await read('real/file')).toBe('new')
  })

  it('lose a link that leads out, not what it leads to', async () => {
    fs.symlinkSync(outside, path.join(root, 'way'))
    await worker.client.move('way', 'moved')
    await worker.client.remove('moved')
    fs.mkdirSync(path.join(root, 'folder'))
    fs.symlinkSync(outside, path.join(root, 'folder/way'))
    await worker.client.remove('folder')
    expect(fs.readdirSync(outside)).toEqual(['secret'])
  })

  it.each([['ro'], ['inner-ro']])('that may only be read are only read: %s', async (name) => {
    const file = name === 'ro' ? path.join(readOnly, 'given') : 'inner-ro/kept'
    const content = name === 'ro' ? 'given' : 'kept'
    expect(await read(file)).toBe(content)
    for (const [how, write] of Object.entries(writes(file)))
      await expect(write(), how).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_FILE_FAILED' })
    await expect(worker.client.writeFile(path.join(path.dirname(file), 'new'), '')).rejects.toMatchObject(
      fault('read_only'),
    )
    expect(await read(file)).toBe(content)
    expect(strays()).toBe('')
  })

  it('hold no fifos, sockets and devices that could be read', async () => {
    execFileSync('mkfifo', [path.join(root, 'fifo')])
    await expect(worker.client.readFile('fifo')).rejects.toMatchObject(fault('not_a_file'))
    const server = net.createServer().listen(path.join(root, 'socket'))
    await expect(worker.client.readFile('socket')).rejects.toMatchObject(fault('not_a_file'))
    expect(await worker.client.stat('fifo')).toMatchObject({ kind: 'other' })
    server.close()
  })

  it('are not left in a race between a folder and a link', async () => {
    fs.mkdirSync(path.join(root, 'real'))
    fs.writeFileSync(path.join(root, 'real/secret'), 'mine')
    fs.symlinkSync(outside, path.join(root, 'evil'))
    const line = 'i=0; while :; do mv -T real swap; mv -T evil real; mv -T real evil; mv -T swap real; done 2>/dev/null'
    const controller = new AbortController()
    const swapping = worker.client.execute({ command: line }, { signal: controller.signal }).catch(() => undefined)
    const results = new Map<string, number>()
    const count = (what: string) => results.set(what, (results.get(what) ?? 0) + 1)
    const causeOf = (error: unknown) => ((error as Error).cause as { code: string }).code
    for (let round = 0; round < 300; round++) {
      await read('real/secret').then(count, (error: unknown) => count(causeOf(error)))
      await worker.client.writeFile('real/written', 'x').then(
        () => count('written'),
        (error: unknown) => count(causeOf(error)),
      )
      await worker.client.remove('real/written').catch((error: unknown) => count(causeOf(error)))
    }
    controller.abort()
    await swapping
    expect(fs.readdirSync(outside)).toEqual(['secret'])
    expect(results.get('secret')).toBeUndefined()
    expect(results.get('mine')).toBeGreaterThan(0)
  }, 120_000)
})

it('a full disk is a fault with a name, and leaves no half file', async () => {
  const place = path.join(worker.folder, 'small')
  fs.mkdirSync(place)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', place], { stdio: 'ignore' })
  } catch {
    console.log('skipped: mounting a tmpfs needs root')
    return
  }
  try {
    await using small = await startWorker({ roots: [{ path: place, writable: true }] })
    await expect(small.client.writeFile('large', Buffer.alloc(8 * 1024 * 1024))).rejects.toMatchObject(fault('ENOSPC'))
    expect(fs.readdirSync(place)).toEqual([])
    await small.client.writeFile('fits', 'x')
  } finally {
    execFileSync('umount', [place])
  }
})
