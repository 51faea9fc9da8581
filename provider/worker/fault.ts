/** A request that cannot be granted: a code for programs and one line for people. Never thrown for what a command did. */

/** Why a request was refused. `code` is an errno name or one of the worker's own (`outside`, `read_only`, `bad_request`…). */
export class Fault extends Error {
  override readonly name = 'Fault'
  readonly code: string

  /** `message` is one line. */
  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/** What to say of anything that was thrown: a fault as it is, an errno with its name, and nothing of the inside otherwise. */
export function faultOf(thrown: unknown): Fault {
  if (thrown instanceof Fault) return thrown
  const { code, message } = thrown instanceof Error ? (thrown as NodeJS.ErrnoException) : {}
  if (typeof code === 'string' && /^E[A-Z0-9]+$/.test(code))
    return new Fault(code, MESSAGES[code] ?? message?.split(',')[0] ?? code)
  return new Fault('internal', 'the worker failed')
}

/** HTTP status of a fault, for clients that know no better. */
export function statusOf(fault: Fault): number {
  return STATUS[fault.code] ?? (fault.code.startsWith('E') ? 409 : 400)
}

const STATUS: Readonly<Record<string, number>> = {
  ENOENT: 404,
  no_such_process: 404,
  no_such_route: 404,
  unauthorized: 401,
  outside: 403,
  read_only: 403,
  too_large: 413,
  too_many: 429,
  ended: 409,
  internal: 500,
  ENOSPC: 507,
}

// Node's own messages name `/proc/self/fd/…`, which tells nobody anything.
const MESSAGES: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or folder',
  EACCES: 'permission denied',
  EPERM: 'operation not permitted',
  EEXIST: 'something is there already',
  ENOTDIR: 'not a folder',
  EISDIR: 'a folder, not a file',
  ENOTEMPTY: 'the folder is not empty',
  ENAMETOOLONG: 'the name is too long',
  ELOOP: 'too many links',
  ENOSPC: 'no space left',
  EDQUOT: 'no space left in the quota',
  EROFS: 'the file system is read-only',
  EXDEV: 'the two places are on different file systems',
  EBUSY: 'in use',
  EMFILE: 'too many open files',
  ENFILE: 'too many open files',
  EAGAIN: 'no room for another process',
  ENOMEM: 'out of memory',
  E2BIG: 'arguments and environment are too long',
  ENXIO: 'no such device',
}
