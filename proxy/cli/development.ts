/** The development set-up: a folder with keys, a policy to edit and a token, made on the first `sallyport serve` without a configuration. */
import { existsSync } from 'node:fs'
import net from 'node:net'
import { join } from 'node:path'
import type { Config } from '../config/schema.ts'
import { openFolder, writeWhole } from '../state/folder.ts'
import { openKeys } from '../tokens/keys.ts'
import { mintToken, type MintedToken } from '../tokens/mint.ts'
import { DEVELOPMENT_CONFIG, DEVELOPMENT_FOLDER } from './config-file.ts'

/** The origin inside the process that the first token may reach. */
export const DEMO_HOST = 'demo.sallyport.test'

/** The same origin under a name that nobody allowed yet. */
export const REFUSED_HOST = 'other.sallyport.test'

const ISSUER = 'sallyport-development'
const LIFE_SECONDS = 86_400
const USUAL_DEMO_PORT = 3180

/** An address of its own keeps the rest of loopback closed; where the system has only one loopback address, that one. */
const DEMO_ADDRESS = process.platform === 'linux' ? '127.83.0.1' : '127.0.0.1'

/**
 * Makes what is missing of the folder; what is there stays as it is. Gives back the configuration file.
 * @throws SallyportError `SALLYPORT_STATE_UNUSABLE`
 */
export async function prepareDevelopment(): Promise<string> {
  await openFolder(DEVELOPMENT_FOLDER)
  if (!existsSync(DEVELOPMENT_CONFIG)) await writeWhole(DEVELOPMENT_CONFIG, configText(await freePort()))
  const keys = await openKeys(DEVELOPMENT_FOLDER)
  if (keys.list().length === 0) await keys.rotate('ES256')
  return DEVELOPMENT_CONFIG
}

/** A token of this set-up that leaves the decision to the policy in the file; also kept in the folder. `undefined` when the issuer was taken out of the file. */
export async function mintDevelopmentToken(config: Config): Promise<MintedToken | undefined> {
  const issuer = config.issuers.find((candidate) => candidate.stateKeys === true)
  const key = await (await openKeys(config.state)).signingKey()
  if (issuer === undefined || key === undefined) return undefined
  const minted = await mintToken({
    key,
    issuer: issuer.issuer,
    audience: issuer.audience[0],
    sandbox: 'dev',
    egress: { kind: 'allow-all' },
    lifeSeconds: LIFE_SECONDS,
  })
  await writeWhole(join(config.state, 'token'), `${minted.token}\n`)
  return minted
}

/** Where the demo origin listens, by the configuration; `undefined` when it was taken out. */
export function demoAddress(config: Config): { readonly host: string; readonly port: number } | undefined {
  const host = config.network.hosts[DEMO_HOST]?.[0]
  const { ceiling } = config.policy
  const entries = ceiling.kind === 'static' ? ceiling.allowedHosts : []
  const port = entries
    .map((entry) => new RegExp(`^${DEMO_HOST}:(\\d+)$`).exec(entry)?.[1])
    .find((digits) => digits !== undefined)
  return host === undefined || port === undefined ? undefined : { host, port: Number(port) }
}

function configText(port: number): string {
  return `# The development set-up of \`sallyport serve\`. Made once, yours to edit; after a change: kill -HUP "$(cat ${DEVELOPMENT_FOLDER}/gateway.pid)"
# For anything but trying it out, write a configuration of your own: docs/configuration.md

state: .

issuers:
  # Tokens signed by the key in this folder: sallyport token mint --sandbox NAME --allow HOST
  - { issuer: ${ISSUER}, algorithms: [ES256], stateKeys: true }

policy:
  ceiling:
    kind: static
    allowedHosts:
      - ${DEMO_HOST}:${port} # an origin inside this gateway, so that a first try needs no internet
      - example.com

network:
  # For the demo only: both names lead to the origin inside this gateway.
  hosts: { ${DEMO_HOST}: ${DEMO_ADDRESS}, ${REFUSED_HOST}: ${DEMO_ADDRESS} }
  allowPrivate: [${DEMO_ADDRESS}/32]
`
}

/** The usual port, or another one when it is taken. */
async function freePort(): Promise<number> {
  return (await tryPort(USUAL_DEMO_PORT)) ?? (await tryPort(0)) ?? USUAL_DEMO_PORT
}

async function tryPort(port: number): Promise<number | undefined> {
  const server = net.createServer()
  return new Promise((resolve) => {
    server.once('error', () => resolve(undefined))
    server.listen({ host: DEMO_ADDRESS, port }, () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : undefined))
    })
  })
}
