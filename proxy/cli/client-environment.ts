/** The variables that make clients go through the gateway, and what each client needs beyond them. Pure. */

/** What clients are to be told. */
export interface ClientSettings {
  /** `http://host:port` of the gateway, or `https:` with TLS to it; without credentials. */
  readonly proxy: URL
  /** Without one, the variables hold no credentials: for a bound listener. */
  readonly token: string | undefined
  /** The user name beside the token; anything will do. */
  readonly user: string
  /** PEM bundle for clients that must trust an authority of their own. */
  readonly caFile?: string | undefined
}

/** Variables by name, in the order in which they are printed. */
export type Variables = Readonly<Record<string, string>>

/** Only this machine itself: more would be a way round the gateway, and clients disagree on ranges and leading dots. */
const NO_PROXY = 'localhost,127.0.0.1,::1'

/**
 * A CONNECT through the gateway for ssh, in bash alone, so that the token is in no argument list: `$0` is the host and `$1` the port.
 * bash reads a socket byte by byte, so nothing behind the head is lost.
 */
function sshConnect(host: string, port: string): string {
  return [
    `exec 3<>/dev/tcp/${host}/${port} || exit 1`,
    'exec 4<&0',
    `printf 'CONNECT %s:%s HTTP/1.1\\r\\nHost: %s:%s\\r\\n' "$0" "$1" "$0" "$1" >&3`,
    `[ -z "$SALLYPORT_TOKEN" ] || printf 'Proxy-Authorization: Bearer %s\\r\\n' "$SALLYPORT_TOKEN" >&3`,
    `printf '\\r\\n' >&3`,
    'IFS= read -r status <&3',
    `case "$status" in 'HTTP/1.1 200'*) ;; *) printf 'sallyport: %s\\n' "$status" >&2; exit 1 ;; esac`,
    'while IFS= read -r line <&3 && [ "${#line}" -gt 1 ]; do :; done',
    'cat <&4 >&3 & cat <&3',
    'kill $! 2>/dev/null',
  ].join('; ')
}

/** All variables. */
export function clientVariables(settings: ClientSettings): Variables {
  const { token } = settings
  const { hostname, port, url } = partsOf(settings)
  const credentials = token === undefined ? {} : { SALLYPORT_TOKEN: token }
  return {
    ...bothCases('HTTP_PROXY', url),
    ...bothCases('HTTPS_PROXY', url),
    ...bothCases('ALL_PROXY', url),
    ...bothCases('NO_PROXY', NO_PROXY),
    ...bothCases('FTP_PROXY', url),
    ...bothCases('WS_PROXY', url),
    ...bothCases('WSS_PROXY', url),
    ...bothCases('GRPC_PROXY', url),
    NODE_USE_ENV_PROXY: '1',
    GLOBAL_AGENT_HTTP_PROXY: url,
    GLOBAL_AGENT_HTTPS_PROXY: url,
    GLOBAL_AGENT_NO_PROXY: NO_PROXY,
    npm_config_proxy: url,
    npm_config_https_proxy: url,
    npm_config_noproxy: NO_PROXY,
    YARN_HTTP_PROXY: url,
    YARN_HTTPS_PROXY: url,
    DOCKER_HTTP_PROXY: url,
    DOCKER_HTTPS_PROXY: url,
    ...(isTls(settings) ? {} : plainVariables(settings)),
    // git asks without credentials first, unless it is told not to.
    ...(token === undefined
      ? {}
      : { GIT_CONFIG_COUNT: '1', GIT_CONFIG_KEY_0: 'http.proxyAuthMethod', GIT_CONFIG_VALUE_0: 'basic' }),
    SALLYPORT_PROXY: `${settings.proxy.protocol}//${hostname}:${port}`,
    ...credentials,
    ...(settings.caFile === undefined ? {} : authorityVariables(settings)),
  }
}

/** Of clients that speak no TLS to a proxy: to a gateway that does they would send the token in the clear. */
function plainVariables(settings: ClientSettings): Variables {
  const { token, user } = settings
  const { host, hostname, port, url } = partsOf(settings)
  return {
    RSYNC_PROXY: url.replace(/^https?:\/\//, ''),
    CLOUDSDK_PROXY_TYPE: 'http',
    CLOUDSDK_PROXY_ADDRESS: host,
    CLOUDSDK_PROXY_PORT: port,
    ...(token === undefined ? {} : { CLOUDSDK_PROXY_USERNAME: user, CLOUDSDK_PROXY_PASSWORD: token }),
    JAVA_TOOL_OPTIONS: javaOptions(hostname, port),
    GIT_SSH_COMMAND: `ssh -o ProxyCommand='bash --norc -c "$SALLYPORT_SSH_CONNECT" %h %p'`,
    SALLYPORT_SSH_CONNECT: sshConnect(host, port),
  }
}

function isTls({ proxy }: ClientSettings): boolean {
  return proxy.protocol === 'https:'
}

/** What can't be set by a variable, a line each. */
export function clientNotes(settings: ClientSettings): readonly string[] {
  const notes = [
    'curl, wget and apt read the lower-case names; Python, Node, Go and npm either; apt and wget no others.',
    'NO_PROXY holds this machine alone; a client that is told more would go round the gateway.',
    'Node: fetch needs NODE_USE_ENV_PROXY=1 (set here), which Node before 22.21 does not know; there use ProxyAgent of undici. axios: set `proxy: false` and an HttpsProxyAgent.',
    'Python: requests and urllib read these variables; aiohttp only with `trust_env=True`; websockets from version 15.',
    isTls(settings)
      ? "TLS to the gateway: nothing is set for Java, git over ssh, rsync and gcloud. Python's urllib can't either, and sends the token in the clear before it fails; requests can."
      : 'git over ssh goes through CONNECT by GIT_SSH_COMMAND and needs bash; the policy must allow the port, such as `github.com:22`.',
    ...(isTls(settings)
      ? [
          'curl takes the authority of the gateway from `--proxy-cacert`, and a client certificate from `--proxy-cert` and `--proxy-key`.',
        ]
      : []),
  ]
  if (settings.token === undefined) return notes
  const javaNote =
    'Java reads no credentials from variables: set a java.net.Authenticator with user and token. JAVA_TOOL_OPTIONS enables Basic for CONNECT (disabledSchemes) and holds no token, since the JVM prints it.'
  return [
    ...notes,
    'curl before 7.65 cuts user info at 255 characters: there use `--proxy-header "Proxy-Authorization: Bearer $SALLYPORT_TOKEN"`.',
    'SOCKS5 allows a password of 255 bytes: for a longer token mint a handle (`sallyport token mint --handle`) and use that.',
    ...(isTls(settings) ? [] : [javaNote]),
    'Chromium and Playwright ignore credentials in variables: pass `proxy: { server, username, password }`.',
    'GIT_CONFIG_COUNT here replaces one that is set already.',
  ]
}

function bothCases(name: string, value: string): Variables {
  return { [name]: value, [name.toLowerCase()]: value }
}

function partsOf({ proxy, token, user }: ClientSettings): {
  host: string
  hostname: string
  port: string
  url: string
} {
  const port = proxy.port === '' ? (proxy.protocol === 'https:' ? '443' : '80') : proxy.port
  // Both a user and a password: several clients drop credentials that lack either.
  const credentials = token === undefined ? '' : `${encodeURIComponent(user)}:${encodeURIComponent(token)}@`
  const url = `${proxy.protocol}//${credentials}${proxy.hostname}:${port}`
  return { host: proxy.hostname.replace(/^\[|\]$/g, ''), hostname: proxy.hostname, port, url }
}

function javaOptions(hostname: string, port: string): string {
  const schemes = ['http', 'https'].flatMap((scheme) => [
    `-D${scheme}.proxyHost=${hostname}`,
    `-D${scheme}.proxyPort=${port}`,
  ])
  return [
    ...schemes,
    '-Dhttp.nonProxyHosts=localhost|127.*|[::1]',
    '-Djdk.http.auth.tunneling.disabledSchemes=',
    '-Djdk.http.auth.proxying.disabledSchemes=',
  ].join(' ')
}

/** For a gateway whose certificate, or an origin whose authority, the clients don't know. The file must hold the usual authorities too. */
function authorityVariables(settings: ClientSettings): Variables {
  const names = [
    ...(isTls(settings) ? ['GIT_PROXY_SSL_CAINFO'] : []),
    'SSL_CERT_FILE',
    'NODE_EXTRA_CA_CERTS',
    'REQUESTS_CA_BUNDLE',
    'CURL_CA_BUNDLE',
    'GIT_SSL_CAINFO',
    'PIP_CERT',
    'CARGO_HTTP_CAINFO',
    'AWS_CA_BUNDLE',
    'DENO_CERT',
    'npm_config_cafile',
    'GRPC_DEFAULT_SSL_ROOTS_FILE_PATH',
  ]
  return Object.fromEntries(names.map((name) => [name, settings.caFile ?? '']))
}
