/** The worker's own reason, as the `cause` of an error. */

/** Why a worker refused: an errno name such as `ENOENT`, or `outside` (not below a declared root), `read_only`, `not_a_file`, `too_large`… */
export class WorkerFault extends Error {
  override readonly name = 'WorkerFault'
  readonly code: string

  /** `message` is the worker's, cut and cleaned. */
  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}
