/** Makes a server listen without what Node does on its way there: it asks the resolver and loads its cluster, which together is a tenth of its own start. */
import type net from 'node:net'

/** Where. */
export type ListenAddress =
  { readonly host: string; readonly port: number } | { readonly path: string } | { readonly fd: number }

/** What Node itself calls in the end; -1 stands for what a unix socket does not have. */
interface ListensAtOnce {
  readonly _listen2?: (address: string, port: number, family: 4 | -1, backlog: number) => void
}

const BACKLOG = 511

/** Resolves when it listens; what fails later is ignored. @throws Error when the place is taken */
export function listenAt(server: net.Server, address: ListenAddress): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.once('listening', () => {
      server.off('error', reject).on('error', () => undefined)
      resolve()
    })
    begin(server, address)
  })
}

function begin(server: net.Server & ListensAtOnce, address: ListenAddress): void {
  // The resolver has nothing to say of this one.
  const isLoopback = 'host' in address && address.host === '127.0.0.1'
  if (server._listen2 === undefined || !('path' in address || isLoopback))
    server.listen({ ...address, backlog: BACKLOG })
  else if ('path' in address) server._listen2(address.path, -1, -1, BACKLOG)
  else server._listen2(address.host, address.port, 4, BACKLOG)
}
