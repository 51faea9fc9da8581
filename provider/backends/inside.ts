/** Where things are inside a sandbox of the process tier, and the small files of its `/etc`. */
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'

/** Paths inside. */
export const INSIDE = {
  /** The writable folder when the caller names none. */
  workspace: '/workspace',
  node: '/run/sallyport/bin/node',
  worker: '/run/sallyport/bin/worker.cjs',
  /** What its `/etc` has of its own. */
  ownFiles: '/run/sallyport/etc',
  /** Folders, never socket files: a socket that is made anew would be another file. */
  control: '/run/sallyport/control',
  egress: '/run/sallyport/egress',
  workerSocket: '/run/sallyport/control/worker.sock',
  gatewaySocket: '/run/sallyport/egress/gateway.sock',
} as const

/** Where clients inside find the gateway. */
export const INSIDE_PROXY = { host: '127.0.0.1', port: 3128 } as const

/** Whoever runs the sandbox outside is this user inside; files of anybody else are nobody's. */
export const INSIDE_USER = { name: 'sandbox', uid: 1000, gid: 1000 } as const

/** Names and users of the sandbox alone: nothing of the host's is told. There is no name server, so that a look-up fails at once. */
const OWN_FILES = (home: string): Readonly<Record<string, string>> => ({
  passwd:
    `root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n${INSIDE_USER.name}:x:${INSIDE_USER.uid}:${INSIDE_USER.gid}::${home}:/bin/sh\n` +
    'nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n',
  group: `root:x:0:\n${INSIDE_USER.name}:x:${INSIDE_USER.gid}:\nnogroup:x:65534:\n`,
  hosts: '127.0.0.1 localhost\n::1 localhost\n127.0.0.1 sandbox\n',
  hostname: 'sandbox\n',
  'host.conf': 'multi on\n',
  'nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files\nnetworks: files\nprotocols: files\nservices: files\n',
  'resolv.conf': '# No name is resolved in here: the gateway does it.\n',
})

/** Writes the files into `folder` and returns their names. At one stroke: they are small, and a start waits for them. */
export function writeOwnFiles(folder: string, home: string): readonly string[] {
  mkdirSync(folder, { recursive: true, mode: 0o755 })
  const files = Object.entries(OWN_FILES(home))
  for (const [name, content] of files) writeFileSync(path.join(folder, name), content)
  return files.map(([name]) => name)
}
