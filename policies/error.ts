/** The one error class of the package, here because everything may import this folder. A denial is never an error; this is for faults. */

/** Every code that a {@link SallyportError} may carry; `docs/errors.md` lists them all. */
export type ErrorCode =
  | 'SALLYPORT_CONFIG_INVALID'
  | 'SALLYPORT_CONFIG_UNREADABLE'
  | 'SALLYPORT_LISTEN_FAILED'
  | 'SALLYPORT_STATE_UNUSABLE'
  | 'SALLYPORT_KEY_UNREADABLE'
  | 'SALLYPORT_TOKEN_INVALID'
  | 'SALLYPORT_POLICY_INVALID'
  | 'SALLYPORT_AUDIT_UNREADABLE'
  | 'SALLYPORT_AUDIT_UNWRITABLE'
  | 'SALLYPORT_GATEWAY_CLOSED'
  | 'SALLYPORT_WORKERS_FAILED'
  | 'SALLYPORT_GATEWAY_REFUSED'
  | 'SALLYPORT_GATEWAY_UNREACHABLE'
  | 'SALLYPORT_PACKAGE_MISSING'
  | 'SALLYPORT_SANDBOX_BACKEND_MISSING'
  | 'SALLYPORT_SANDBOX_BACKEND_FAILED'
  | 'SALLYPORT_SANDBOX_CONNECTION_LOST'
  | 'SALLYPORT_SANDBOX_CREATE_FAILED'
  | 'SALLYPORT_SANDBOX_DESTROYED'
  | 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED'
  | 'SALLYPORT_SANDBOX_EXEC_FAILED'
  | 'SALLYPORT_SANDBOX_FILE_FAILED'
  | 'SALLYPORT_SANDBOX_IMAGE_MISSING'
  | 'SALLYPORT_SANDBOX_NOT_FOUND'
  | 'SALLYPORT_SANDBOX_NOT_SUPPORTED'

/** A fault with a stable code. The message is fit to print; it never holds a token, a key or a credential. */
export class SallyportError extends Error {
  override readonly name = 'SallyportError'
  /** Stable, for programs. */
  readonly code: ErrorCode

  /** `message` is one line, fit to print as it is. */
  constructor(code: ErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options)
    this.code = code
  }
}
