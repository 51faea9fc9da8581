/** Other proxies of this machine that the gateway is compared with, beside squid and the minimal relay, which the kit starts itself. Each lets everybody through. */
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'

/** One that is there. */
interface Peer {
  readonly name: string
  /** Starts it in the foreground, as a shell does. */
  readonly command: string
}

const PREPARED: Readonly<Record<string, (folder: string, port: number) => string | undefined>> = {
  tinyproxy: (folder, port) => {
    const lines = [
      `Port ${port}`,
      'Listen 127.0.0.1',
      'Allow 127.0.0.0/8',
      'MaxClients 20000',
      'Timeout 600',
      'LogLevel Critical',
    ]
    const file = written(folder, 'tinyproxy.conf', [...lines, ''].join('\n'))
    return program('tinyproxy') && `tinyproxy -d -c ${file}`
  },
  trafficserver: (folder, port) => {
    if (program('traffic_server') === undefined) return undefined
    const root = path.join(folder, 'trafficserver')
    const kinds = [
      'bin',
      'sbin',
      'sysconf',
      'data',
      'include',
      'lib',
      'libexec',
      'localstate',
      'runtime',
      'log',
      'cache',
    ]
    for (const kind of kinds) fs.mkdirSync(path.join(root, kind), { recursive: true })
    const layout = ['prefix: .', 'exec_prefix: .', ...kinds.map((kind) => `${kind}dir: ./${kind}`)]
    written(root, 'runroot.yaml', `${layout.join('\n')}\n`)
    const settings = {
      'http.server_ports': `STRING ${port}:ip-in=127.0.0.1`,
      'http.connect_ports': 'STRING *',
      'http.cache.http': 'INT 0',
      'reverse_proxy.enabled': 'INT 0',
      'url_remap.remap_required': 'INT 0',
      'exec_thread.autoconfig': 'INT 0',
      'exec_thread.limit': 'INT 1',
      'net.connections_throttle': 'INT 60000',
      'log.logging_enabled': 'INT 0',
      'admin.user_id': 'STRING #-1',
    }
    const text = Object.entries(settings).map(([name, value]) => `CONFIG proxy.config.${name} ${value}\n`)
    written(path.join(root, 'sysconf'), 'records.config', text.join(''))
    written(path.join(root, 'sysconf'), 'storage.config', '')
    const everybody = 'ip_allow:\n  - { apply: in, ip_addrs: 127.0.0.0/8, action: allow, methods: ALL }\n'
    written(path.join(root, 'sysconf'), 'ip_allow.yaml', everybody)
    return `traffic_server --run-root=${path.join(root, 'runroot.yaml')}`
  },
  mitmproxy: (folder, port) =>
    program('mitmdump') &&
    `mitmdump -q --set confdir=${folder}/mitmproxy --listen-host 127.0.0.1 -p ${port} --ignore-hosts '.*'`,
  proxy: (folder, port) => {
    const file = written(
      folder,
      'npm-proxy.mjs',
      `import http from 'node:http'\nimport { createProxy } from '${fromNpm(folder, 'proxy')}'\ncreateProxy(http.createServer()).listen(${port}, '127.0.0.1')\n`,
    )
    return `${process.execPath} ${file}`
  },
  'proxy-chain': (folder, port) => {
    const file = written(
      folder,
      'proxy-chain.mjs',
      `import { Server } from '${fromNpm(folder, 'proxy-chain')}'\nawait new Server({ host: '127.0.0.1', port: ${port} }).listen()\n`,
    )
    return `${process.execPath} ${file}`
  },
}

/** Names that {@link peers} knows. */
export const PEERS = Object.keys(PREPARED)

/** Those of `names` that can run here, each with its files below `folder`; the packages of npm are fetched. Says on standard error which are not there. */
export function peers(names: readonly string[], folder: string, port: number): readonly Peer[] {
  return names.flatMap((name) => {
    const command = PREPARED[name]?.(folder, port)
    if (command === undefined) console.error(`${name} is not here`)
    return command === undefined ? [] : [{ name, command }]
  })
}

function program(name: string): string | undefined {
  const folders = (process.env['PATH'] ?? '').split(path.delimiter)
  return folders.map((folder) => path.join(folder, name)).find((file) => fs.existsSync(file))
}

/** The entry of a package, as its own `package.json` says. */
function fromNpm(folder: string, name: string): string {
  const home = path.join(folder, 'npm', name)
  fs.mkdirSync(home, { recursive: true })
  execFileSync('npm', ['install', '--prefix', home, '--no-save', '--ignore-scripts', '--silent', name])
  return execFileSync(
    process.execPath,
    ['--input-type=module', '-e', `process.stdout.write(import.meta.resolve('${name}'))`],
    { cwd: home, encoding: 'utf8' },
  )
}

function written(folder: string, name: string, text: string): string {
  const file = path.join(folder, name)
  fs.writeFileSync(file, text)
  return file
}
