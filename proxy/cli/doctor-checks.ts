/** What `sallyport doctor` looks at: whether this machine can run the gateway, and what it has to confine sandboxes with. Changes nothing. */
import { accessSync, constants, existsSync, readFileSync, statSync } from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { SallyportError } from '../../policies/error.ts'
import type { Environment } from '../config/environment.ts'
import type { Config } from '../config/schema.ts'
import { listenText, type ListenAddress } from '../config/values.ts'
import { configWarnings, lacksOwnKey, NO_OWN_KEY } from '../config/warnings.ts'
import { configuredAddresses } from '../listeners.ts'
import { readMachineSets } from '../policy/machine-sets.ts'
import { canShareTcp } from '../relay/listen.ts'
import { createPolicySource } from '../policy/policy-source.ts'
import { countOwnKeys } from '../tokens/keys.ts'
import { nodeVersionFault } from './node-version.ts'

/** One thing that was looked at. */
export interface Finding {
  readonly name: string
  /** `fail` keeps the gateway from running as configured; `missing` only concerns those who want what it is for. */
  readonly status: 'ok' | 'warn' | 'fail' | 'missing'
  readonly detail: string
  /** A command or a setting that mends it. */
  readonly fix?: string
}

interface Tool {
  readonly command: string
  readonly purpose: string
  /** Package of Debian; absent where Debian has none. */
  readonly debian?: string
}

const TOOLS: readonly Tool[] = [
  { command: 'bwrap', purpose: 'sandboxes as processes', debian: 'bubblewrap' },
  { command: 'docker', purpose: 'sandboxes as containers', debian: 'docker.io' },
  { command: 'runsc', purpose: 'containers under gVisor' },
  { command: 'firecracker', purpose: 'sandboxes as microVMs' },
  { command: 'nft', purpose: 'a floor of firewall rules under sandboxes', debian: 'nftables' },
  { command: 'ip', purpose: 'network namespaces', debian: 'iproute2' },
  { command: 'curl', purpose: 'the lines that `sallyport serve` prints', debian: 'curl' },
  { command: 'bash', purpose: 'git over ssh through the gateway', debian: 'bash' },
]

/** Before this the clock of the machine is certainly wrong. */
const EARLIEST_MS = Date.UTC(2025, 0, 1)

/** Everything about the machine, whatever the configuration. */
export async function checkMachine(environment: Environment): Promise<readonly Finding[]> {
  return [
    checkNode(),
    checkClock(),
    await checkReusePort(),
    await checkIpv6(),
    checkNamespaces(),
    ...TOOLS.map((tool) => checkTool(tool, environment)),
    checkKvm(),
  ]
}

/** Everything about one configuration. */
export async function checkConfigured(config: Config): Promise<readonly Finding[]> {
  const addresses = configuredAddresses(config)
  const findings: Finding[] = [
    checkDescriptors(config.limits.tunnels),
    ...checkWorkers(config),
    checkFolder('state folder', config.state),
    checkFolder('audit folder', config.audit.path),
  ]
  for (const detail of configWarnings(config)) findings.push({ name: 'network', status: 'warn', detail })
  if (lacksOwnKey(config, countOwnKeys(config.state)))
    findings.push({
      name: 'own keys',
      status: 'warn',
      detail: NO_OWN_KEY,
      fix: `sallyport keys generate --state ${config.state}`,
    })
  findings.push(...checkTenantFiles(config))
  for (const address of addresses) findings.push(await checkAddress(address))
  const files = [
    config.listen.tls?.cert,
    config.listen.tls?.key,
    config.listen.tls?.clientCa,
    config.network.upstream?.credentialsFile,
    config.network.upstream?.tokenFile,
    config.policy.tenantResolver?.tokenFile,
  ]
  const issuerFiles = config.issuers.flatMap((issuer) => [
    issuer.secretFile,
    issuer.jwksTokenFile,
    issuer.jwks?.startsWith('http') === true ? undefined : issuer.jwks,
  ])
  for (const file of [...files, ...issuerFiles]) if (file !== undefined) findings.push(checkFile(file))
  return findings
}

/** More processes than cores only cost; where no port can be shared there can be none. */
function checkWorkers({ workers }: Config): readonly Finding[] {
  if (workers === 1) return []
  const name = 'workers'
  if (!canShareTcp())
    return [
      { name, status: 'fail', detail: 'on this system several processes can not share a port', fix: 'workers: 1' },
    ]
  const cores = os.availableParallelism()
  const fix = `workers: ${cores}`
  if (workers > cores) return [{ name, status: 'warn', detail: `${workers}, and there are ${cores} cores`, fix }]
  return [{ name, status: 'ok', detail: `${workers} on ${cores} cores` }]
}

function checkNode(): Finding {
  const fault = nodeVersionFault(process.version)
  return { name: 'Node', status: fault === undefined ? 'ok' : 'fail', detail: fault ?? process.version }
}

function checkClock(): Finding {
  const now = Date.now()
  if (now < EARLIEST_MS)
    return {
      name: 'clock',
      status: 'fail',
      detail: `it says ${new Date(now).toISOString()}; no token can be judged by it`,
      fix: 'apt-get install -y systemd-timesyncd',
    }
  const isSynchronised = existsSync('/run/systemd/timesync/synchronized')
  const detail = `${new Date(now).toISOString()}${isSynchronised ? ', synchronised' : '; whether it is synchronised is not known'}`
  return { name: 'clock', status: 'ok', detail }
}

/** The gateway opens its port several times, so that a busy process still accepts. */
async function checkReusePort(): Promise<Finding> {
  const first = await listen({ host: '127.0.0.1', port: 0, reusePort: true })
  if (typeof first === 'string')
    return {
      name: 'reusePort',
      status: 'warn',
      detail: `not here (${first}); the gateway listens once, and accepts slower under load`,
    }
  const port = portOf(first)
  const second = await listen({ host: '127.0.0.1', port, reusePort: true })
  first.close()
  if (typeof second === 'string')
    return { name: 'reusePort', status: 'warn', detail: `a port can't be shared (${second})` }
  second.close()
  return { name: 'reusePort', status: 'ok', detail: 'a port can be shared' }
}

async function checkIpv6(): Promise<Finding> {
  const server = await listen({ host: '::1', port: 0 })
  if (typeof server === 'string')
    return {
      name: 'IPv6',
      status: 'warn',
      detail: `no loopback address (${server}); destinations are reached by IPv4 alone`,
    }
  server.close()
  const isRouted = Object.values(os.networkInterfaces()).some((list) =>
    list?.some((entry) => entry.family === 'IPv6' && !entry.internal && !entry.address.startsWith('fe80')),
  )
  return {
    name: 'IPv6',
    status: 'ok',
    detail: isRouted ? 'loopback and a global address' : 'loopback only; destinations are reached by IPv4',
  }
}

function checkNamespaces(): Finding {
  const name = 'user namespaces'
  if (process.platform !== 'linux') return { name, status: 'missing', detail: `not on ${process.platform}` }
  if (readNumber('/proc/sys/user/max_user_namespaces') === 0)
    return { name, status: 'warn', detail: 'turned off', fix: 'sysctl -w user.max_user_namespaces=15000' }
  if (readNumber('/proc/sys/kernel/unprivileged_userns_clone') === 0)
    return { name, status: 'warn', detail: 'only for root', fix: 'sysctl -w kernel.unprivileged_userns_clone=1' }
  if (readNumber('/proc/sys/kernel/apparmor_restrict_unprivileged_userns') === 1)
    return { name, status: 'warn', detail: 'restricted by AppArmor; bubblewrap needs a profile' }
  return { name, status: 'ok', detail: 'unprivileged' }
}

function checkKvm(): Finding {
  try {
    accessSync('/dev/kvm', constants.R_OK | constants.W_OK)
    return { name: '/dev/kvm', status: 'ok', detail: 'microVMs can run' }
  } catch {
    return {
      name: '/dev/kvm',
      status: 'missing',
      detail: existsSync('/dev/kvm') ? 'not for this user' : 'not here: no microVMs',
    }
  }
}

function checkTool(tool: Tool, environment: Environment): Finding {
  const found = (environment['PATH'] ?? '')
    .split(delimiter)
    .map((folder) => join(folder, tool.command))
    .find(isExecutable)
  if (found !== undefined) return { name: tool.command, status: 'ok', detail: found }
  const detail = `not installed; for ${tool.purpose}`
  return tool.debian === undefined
    ? { name: tool.command, status: 'missing', detail: `${detail}; Debian has no package of it` }
    : { name: tool.command, status: 'missing', detail, fix: `apt-get install -y ${tool.debian}` }
}

/** Each tunnel takes two descriptors. */
function checkDescriptors(tunnels: number): Finding {
  const limit = descriptorLimit()
  const needed = tunnels * 2 + 200
  if (limit === undefined || limit >= needed)
    return { name: 'descriptors', status: 'ok', detail: limit === undefined ? 'no limit is known' : `${limit}` }
  return {
    name: 'descriptors',
    status: 'warn',
    detail: `${limit}, but limits.tunnels: ${tunnels} needs ${needed}`,
    fix: `ulimit -n ${needed}`,
  }
}

function descriptorLimit(): number | undefined {
  try {
    const line = readFileSync('/proc/self/limits', 'utf8')
      .split('\n')
      .find((text) => text.startsWith('Max open files'))
    const soft = line?.trim().split(/\s{2,}/)[1]
    return soft === undefined || soft === 'unlimited' ? undefined : Number(soft)
  } catch {
    return undefined
  }
}

function checkFolder(name: string, path: string): Finding {
  const present = nearestPresent(path)
  try {
    const stats = statSync(present)
    if (present !== path) {
      accessSync(present, constants.W_OK | constants.X_OK)
      return { name, status: 'ok', detail: `${path} will be made` }
    }
    const user = process.geteuid?.()
    if (!stats.isDirectory()) return { name, status: 'fail', detail: `${path} is not a folder` }
    if (user !== undefined && stats.uid !== user)
      return {
        name,
        status: 'fail',
        detail: `${path} belongs to user ${stats.uid}, and this is user ${user}`,
        fix: `chown -R ${user} ${path}`,
      }
    accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK)
    return { name, status: 'ok', detail: path }
  } catch {
    return { name, status: 'fail', detail: `${path} is not writable for this user` }
  }
}

function nearestPresent(path: string): string {
  let present = path
  while (!existsSync(present) && dirname(present) !== present) present = dirname(present)
  return present
}

/** As the gateway reads them. */
function checkTenantFiles({ policy }: Config): readonly Finding[] {
  if (policy.tenantFiles === undefined) return []
  const name = 'tenant files'
  try {
    const source = createPolicySource({ policy, machineSets: { ...readMachineSets().sets } })
    const files = source.tenantFiles()
    source.close()
    if (files === undefined || files.faults.length === 0)
      return [{ name, status: 'ok', detail: `${policy.tenantFiles.path}: ${files?.tenants ?? 0} tenants` }]
    return files.faults.map(({ message, path }) => ({
      name,
      status: 'fail',
      detail: message.includes(path) ? message : `\`${path}\`: ${message}`,
    }))
  } catch (error) {
    return [{ name, status: 'fail', detail: error instanceof SallyportError ? error.message : 'can not be read' }]
  }
}

function checkFile(path: string): Finding {
  try {
    accessSync(path, constants.R_OK)
    return { name: 'file', status: 'ok', detail: path }
  } catch {
    return {
      name: 'file',
      status: 'fail',
      detail: `${path} ${existsSync(path) ? 'is not readable for this user' : 'does not exist'}`,
    }
  }
}

async function checkAddress(address: ListenAddress): Promise<Finding> {
  const text = listenText(address)
  if (address.kind === 'unix') return checkFolder(`socket ${text}`, dirname(address.path))
  const server = await listen({ host: address.host, port: address.port, exclusive: true })
  if (typeof server !== 'string') {
    server.close()
    return { name: `port ${text}`, status: 'ok', detail: 'free' }
  }
  if (server === 'EADDRINUSE')
    return { name: `port ${text}`, status: 'warn', detail: 'in use: by a running gateway, or by something else' }
  return {
    name: `port ${text}`,
    status: 'fail',
    detail: server === 'EACCES' ? 'not allowed for this user' : `can't be opened (${server})`,
  }
}

/** A listening server, or the code of why not. */
async function listen(options: net.ListenOptions): Promise<net.Server | string> {
  const server = net.createServer()
  return new Promise((resolve) => {
    server.once('error', (error) => resolve('code' in error ? String(error.code) : error.message))
    server.listen(options, () => resolve(server))
  })
}

function portOf(server: net.Server): number {
  const address = server.address()
  return typeof address === 'object' && address !== null ? address.port : 0
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return statSync(file).isFile()
  } catch {
    return false
  }
}

function readNumber(file: string): number | undefined {
  try {
    return Number(readFileSync(file, 'utf8'))
  } catch {
    return undefined
  }
}
