/** Where sandboxes of a user keep their sockets, unless somebody says otherwise: the provider makes the folder, and a gateway may bind listeners in it. */
import os from 'node:os'
import path from 'node:path'

/** `$XDG_RUNTIME_DIR/sallyport`, or `sallyport-UID` in `/tmp`: a folder whose path leaves room for sockets. */
export function defaultRuntimeRoot(): string {
  const folder = process.env['XDG_RUNTIME_DIR']
  return folder !== undefined && path.isAbsolute(folder)
    ? path.join(folder, 'sallyport')
    : `/tmp/sallyport-${os.userInfo().uid}`
}
