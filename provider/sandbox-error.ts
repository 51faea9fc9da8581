/** The faults of the provider. Each has a code that programs may rely on, and says what to do. */
import { SallyportError, type ErrorCode } from '../policies/index.ts'

/** Codes that a {@link SandboxError} may carry; `docs/errors.md` lists them all. */
export type SandboxErrorCode = Extract<ErrorCode, `SALLYPORT_SANDBOX_${string}`>

/** A fault of a sandbox or of the platform under it. */
export class SandboxError extends SallyportError {
  /** `unknown`: the command may or may not have run to its end; do not run it again blindly. */
  readonly outcome: 'known' | 'unknown'

  /** `message` is one line, fit to print as it is. */
  constructor(
    code: SandboxErrorCode,
    message: string,
    options: { readonly cause?: unknown; readonly outcome?: 'known' | 'unknown' } = {},
  ) {
    super(code, message, options)
    this.outcome = options.outcome ?? 'known'
  }
}
