/** Runs the gateway for `sallyport serve`: starts it, says where it is, reloads at SIGHUP, drains at SIGTERM. */
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pino, type Logger } from 'pino'
import { SallyportError } from '../../policies/index.ts'
import { collectWhenQuiet } from '../collect-when-quiet.ts'
import { faultText } from '../config/faults.ts'
import { ConfigError } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import { listenText, type ListenAddress } from '../config/values.ts'
import { createGateway, type Gateway, type GatewayOptions, type Listening } from '../gateway.ts'
import { loadConfigFile, type Loaded } from './config-file.ts'
import { startDemoOrigin } from './demo-origin.ts'
import { DEMO_HOST, demoAddress, mintDevelopmentToken, prepareDevelopment, REFUSED_HOST } from './development.ts'
import { packageVersion } from './package-version.ts'
import { instant } from './print.ts'
import { quoteShell } from './quote-shell.ts'
import { EXIT, type ExitCode, type Terminal } from './terminal.ts'
import { whyUnreadable } from '../unreadable.ts'

/** Options of the command. */
export interface ServeOptions {
  readonly config?: string
  readonly pidFile?: string
}

/**
 * Serves until SIGINT or SIGTERM.
 * @throws SallyportError with one line for the operator when it can't start
 */
export async function serve(terminal: Terminal, options: ServeOptions): Promise<ExitCode> {
  const named = options.config ?? terminal.environment['SALLYPORT_CONFIG']
  const isDevelopment = named === undefined || named === ''
  const file = isDevelopment ? await prepareDevelopment() : named
  const loaded = await loadConfigFile(terminal, file)
  if (loaded.config.listen.proxy.length + loaded.config.listen.bound.length === 0)
    throw new SallyportError(
      'SALLYPORT_CONFIG_INVALID',
      `${file}: listen.proxy: \`off\` leaves no client a way in; name an address to serve on`,
    )
  const logger = pino({ level: loaded.config.log.level }, pino.destination(2))
  let reloadGateway = (): Promise<void> => Promise.resolve()
  const { gateway, failed } = await createFrom({
    config: loaded.config,
    version: packageVersion(),
    logger,
    reload: () => reloadGateway(),
  })
  reloadGateway = () => reload(terminal, gateway, loaded, file, logger)
  const undo: (() => unknown)[] = [() => gateway.close(), collectWhenQuiet()]
  try {
    const listening = await gateway.listen().catch((error: unknown) => {
      throw isDevelopment ? withOtherPorts(error) : error
    })
    undo.push(
      await writePidFile(options.pidFile ?? (isDevelopment ? join(loaded.config.state, 'gateway.pid') : undefined)),
    )
    const stopReloads = onReload(() => reloadGateway().catch(() => undefined))
    undo.push(stopReloads)
    if (isDevelopment) undo.push(await welcome(terminal, loaded, listening))
    else terminal.out(whereText(loaded.config, listening).join('\n'))
    const fault = await Promise.race([untilSignal(terminal, gateway, logger), failed])
    if (fault !== undefined) throw fault
    return EXIT.done
  } finally {
    for (const step of undo.toReversed()) await step()
  }
}

/** One process, or one that supervises others: their code is only loaded where it is asked for. */
async function createFrom(options: GatewayOptions): Promise<{ gateway: Gateway; failed: Promise<SallyportError> }> {
  if (options.config.workers > 1)
    return (await import('../workers/supervised-gateway.ts')).createSupervisedGateway(options)
  return { gateway: await createGateway(options), failed: new Promise(() => undefined) }
}

/** The set-up for trying it out has fixed ports, which something else may have. */
function withOtherPorts(error: unknown): unknown {
  if (!(error instanceof SallyportError) || error.code !== 'SALLYPORT_LISTEN_FAILED') return error
  const hint = 'other ports: SALLYPORT_LISTEN_PROXY=127.0.0.1:0 SALLYPORT_LISTEN_ADMIN=127.0.0.1:0'
  return new SallyportError(error.code, `${error.message}; ${hint}`, { cause: error })
}

/** Waits for the first signal and drains; a second signal ends the waiting. */
async function untilSignal(terminal: Terminal, gateway: Gateway, logger: Logger): Promise<undefined> {
  const { signal } = terminal
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
  logger.info({}, 'stopping: no new tunnels; open ones may end by themselves')
  let stop: () => void = () => undefined
  const again = new Promise<void>((resolve) => (stop = resolve))
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, stop)
  await Promise.race([gateway.drain(), again])
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.off(name, stop)
  return undefined
}

/** Reads the file again. One that is wrong changes nothing, and the log says what is wrong. @throws the same */
async function reload(
  terminal: Terminal,
  gateway: Gateway,
  started: Loaded,
  file: string,
  logger: Logger,
): Promise<void> {
  try {
    let config = started.config
    await gateway.reload(async () => ({ config } = await loadConfigFile(terminal, file)).config)
    const needRestart: string[] = (['listen', 'workers', 'state', 'audit', 'log'] as const).filter(
      (section) => JSON.stringify(config[section]) !== JSON.stringify(started.config[section]),
    )
    logger.info({}, 'configuration reloaded')
    if (JSON.stringify(config.admin.tls) !== JSON.stringify(started.config.admin.tls)) needRestart.push('admin.tls')
    if (needRestart.length > 0) logger.warn({ sections: needRestart }, 'these sections changed and need a restart')
  } catch (error) {
    const faults =
      error instanceof ConfigError
        ? error.faults.map((fault) => faultText(fault, file))
        : [error instanceof SallyportError ? error.message : 'a fault while reloading']
    logger.error({ faults }, 'the configuration was not reloaded; the last good one stays in force')
    throw error
  }
}

/** One reload at a time; a signal during one asks for one more after it. */
function onReload(run: () => Promise<void>): () => void {
  let isRunning = false
  let isAskedAgain = false
  const listener = (): void => {
    isAskedAgain = true
    if (isRunning) return
    isRunning = true
    void (async () => {
      while (isAskedAgain) {
        isAskedAgain = false
        await run()
      }
      isRunning = false
    })()
  }
  process.on('SIGHUP', listener)
  return () => void process.off('SIGHUP', listener)
}

async function writePidFile(path: string | undefined): Promise<() => Promise<void> | void> {
  if (path === undefined) return () => undefined
  try {
    await writeFile(path, `${process.pid}\n`)
  } catch (error) {
    const why = whyUnreadable(error)
    throw new SallyportError('SALLYPORT_STATE_UNUSABLE', `pid file \`${path}\` can't be written (${why})`, {
      cause: error,
    })
  }
  return () => rm(path, { force: true })
}

/** Starts the demo origin and prints what a newcomer needs; gives back how to end it. */
async function welcome(terminal: Terminal, { config, file }: Loaded, listening: Listening): Promise<() => void> {
  const address = demoAddress(config)
  const demo = address === undefined ? undefined : await startDemoOrigin(address)
  const minted = await mintDevelopmentToken(config)
  const proxy = listening.proxy.find((candidate) => candidate.kind === 'tcp')
  terminal.out(
    [
      `Sallyport ${packageVersion()}: a development set-up in ${config.state} (not for production)`,
      '',
      ...whereText(config, listening),
    ].join('\n'),
  )
  if (minted === undefined || proxy === undefined)
    terminal.out(`\nNo token was minted: ${file} has no issuer with \`stateKeys\`, or no port to connect to.`)
  else {
    const scheme = config.listen.tls === undefined ? 'http' : 'https'
    const tokenFile = join(config.state, 'token')
    const curl = `curl -i -x "${scheme}://dev:$(cat ${quoteShell(tokenFile)})@${listenText(reachable(proxy))}"`
    const port = address?.port ?? 80
    const [allowed, refused] =
      demo === undefined
        ? ['http://example.com/', 'http://example.org/']
        : [`http://${DEMO_HOST}:${port}/`, `http://${REFUSED_HOST}:${port}/`]
    const { host } = new URL(refused)
    terminal.out(
      [
        `  token   ${tokenFile}, good until ${instant(minted.expiresAtMs)}`,
        '',
        demo === undefined
          ? 'Let out:'
          : `Let out (${DEMO_HOST} is a little demo origin inside this process, so no internet is needed):`,
        '',
        `  ${curl} ${allowed}`,
        '',
        'Refused, with the reason:',
        '',
        `  ${curl} ${refused}`,
        '',
        `To allow it: add the line \`- ${host}\` to allowedHosts in ${file}, then: kill -HUP ${process.pid}`,
        'Ctrl-C stops the gateway.',
      ].join('\n'),
    )
  }
  return () => demo?.close()
}

function whereText(config: Config, { proxy, admin }: Listening): readonly string[] {
  const scheme = (address: ListenAddress, tls: boolean): string =>
    address.kind === 'unix' ? '' : tls ? 'https://' : 'http://'
  return [
    ...proxy.map(
      (address) =>
        `  proxy   ${scheme(address, config.listen.tls !== undefined)}${listenText(address)}   ${spoken(address, config)}`,
    ),
    ...(admin === undefined
      ? []
      : [
          `  admin   ${scheme(admin, config.admin.tls !== undefined)}${listenText(admin)}   /healthz /readyz /openapi.json: docs/control-api.md`,
          ...(config.admin.console && admin.kind === 'tcp'
            ? [
                `  console ${scheme(admin, config.admin.tls !== undefined)}${listenText(reachable(admin))}/console/   docs/console.md`,
              ]
            : []),
        ]),
    `  audit   ${config.audit.path}`,
  ]
}

/** With `listen.tls` every port speaks TLS and nothing else, so that SOCKS5 is only for clients that can put it inside TLS. */
function spoken(address: ListenAddress, config: Config): string {
  const isTls = config.listen.tls !== undefined && address.kind === 'tcp'
  return isTls
    ? 'CONNECT and plain HTTP inside TLS (SOCKS5 too, but few clients can)'
    : 'CONNECT, plain HTTP and SOCKS5'
}

/** An address that a client on this machine can connect to. */
function reachable(address: ListenAddress): ListenAddress {
  if (address.kind === 'unix') return address
  if (address.host === '0.0.0.0') return { ...address, host: '127.0.0.1' }
  return address.host === '::' ? { ...address, host: '::1' } : address
}
