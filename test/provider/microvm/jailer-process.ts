/** Stands in for Firecracker's jailer: takes its command line as strictly, and becomes the program in the folder that would be its root. */
import fs from 'node:fs'
import path from 'node:path'
import process from 'node:process'

const all = process.argv.slice(2)
const [own, program] = [all.slice(0, all.indexOf('--')), all.slice(all.indexOf('--') + 1)]
const given = new Map<string, string[]>()
for (let at = 0; at < own.length; at += 2)
  given.set(own[at] ?? '', [...(given.get(own[at] ?? '') ?? []), own[at + 1] ?? ''])
const one = (name: string, pattern: RegExp): string => {
  const [value = '', ...others] = given.get(name) ?? []
  given.delete(name)
  if (others.length > 0 || !pattern.test(value)) refuse(`${name} is \`${value}\``)
  return value
}

const id = one('--id', /^[A-Za-z0-9-]{1,64}$/)
const file = one('--exec-file', /firecracker[^/]*$/)
const uid = Number(one('--uid', /^[1-9]\d*$/))
if (uid !== Number(one('--gid', /^[1-9]\d*$/))) refuse('user and group differ')
const root = path.join(one('--chroot-base-dir', /^\//), path.basename(file), id, 'root')
if (given.has('--netns')) fs.accessSync(one('--netns', /^\/run\/netns\//))
if (given.has('--cgroup-version')) {
  one('--cgroup-version', /^2$/)
  one('--parent-cgroup', /^[\w-]+$/)
  for (const group of given.get('--cgroup') ?? []) if (!/^(memory|pids|cpu)\.[a-z.]+=[\d ]+$/.test(group)) refuse(group)
  given.delete('--cgroup')
}
one('--resource-limit', /^no-file=\d+$/)
if (given.size > 0) refuse(`unknown: ${[...given.keys()].join(' ')}`)

// The real one would fail on these later, and say less.
const stats = fs.statSync(root)
if (stats.uid !== uid || (stats.mode & 0o077) !== 0) refuse('the root is not the user’s alone')
for (const name of fs.readdirSync(root)) {
  const each = fs.lstatSync(path.join(root, name))
  if (each.isSymbolicLink()) refuse(`${name} leads out of the root`)
  if (each.isFile() && (each.uid === uid || (each.mode & 0o022) !== 0)) refuse(`${name} could be written`)
}
process.execve?.('/bin/sh', ['sh', '-c', 'cd "$1" && shift && exec "$@"', 'sh', root, file, '--id', id, ...program], process.env) // prettier-ignore

function refuse(what: string): never {
  fs.writeSync(2, `jailer: ${what}\n`)
  process.exit(1)
}
