/** What a worker is told at its start: read once, checked whole, from the file of its first argument or from stdin. */

/** Settings of a worker, as JSON. */
export interface WorkerSettings {
  /** Bearer that every request must carry: 32 characters or more. It reaches no child. */
  readonly token: string
  /** Where to listen. A stale socket file is replaced; `mode` is the socket's, `0o600` by default. `fd`: a socket that listens already. */
  readonly listen:
    | { readonly path: string; readonly mode?: number }
    | { readonly host: string; readonly port: number }
    | { readonly fd: number }
  /**
   * Folders that file requests may touch, by real path; the innermost root decides whether it may be written.
   * The first is where relative paths and commands start.
   */
  readonly roots: readonly WorkerRoot[]
  /** Environment of the children. */
  readonly env?: Readonly<Record<string, string>>
  /** Children also get the worker's own environment (what an image sets), below `env`; false by default. */
  readonly inheritEnv?: boolean
  /** Loopback ports that are carried to unix sockets: the way to the gateway. None by default. */
  readonly forward?: readonly WorkerForward[]
  /** A loopback port that is carried to a gateway over the network, each request with the token. None by default. */
  readonly gateway?: WorkerGateway
  /** Milliseconds until the worker ends itself and everything it started; wall-clock time, so that a pause counts. None by default. */
  readonly timeToLiveMs?: number
  /** What `POST /probe` takes: looked for at the start, which needs no round trip. None by default. */
  readonly probe?: object
  /** Print the line `ready` to stdout as soon as requests are answered, with the report of the probe, as JSON, behind it; false by default. */
  readonly announce?: boolean
  /** Pipes that were made for the first commands; none by default. */
  readonly pipes?: WorkerPipes
  /** End when stdin ends, which is when the host's process is gone; needs settings that come from stdin. False by default. */
  readonly endWithStdin?: boolean
}

/** Descriptors that are open when the worker starts: of each pipe one end that can be read, and in the pipe nothing but the mark and a line feed. */
export interface WorkerPipes {
  readonly descriptors: readonly number[]
  /** Random, 32 hexadecimal digits. */
  readonly mark: string
}

/** A folder that file requests may touch. */
export interface WorkerRoot {
  readonly path: string
  readonly writable: boolean
}

/** The way to a gateway for a sandbox that is not on its machine. */
export interface WorkerGateway {
  /** Where clients inside find it. */
  readonly host: string
  readonly port: number
  /** `http://host:port` or `https://host:port`. */
  readonly url: string
  /** PEM of authorities for `https:`; those of Node by default. */
  readonly ca?: string
  /** For `Proxy-Authorization: Bearer`; until there is one, by `/configure`, requests are refused. No command gets it. */
  readonly token?: string
}

/** A loopback port that is carried to a unix socket. */
export interface WorkerForward {
  readonly host: string
  readonly port: number
  readonly path: string
}
