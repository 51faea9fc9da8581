/** What goes wrong with a platform elsewhere, and what to do about each. */
import { SandboxError, type SandboxErrorCode } from '../../sandbox-error.ts'

/** Why there is no sandbox, or no answer. Stable, for programs. */
export type PlatformFault =
  | 'credentials_refused'
  | 'not_found'
  | 'region_unavailable'
  | 'quota_exhausted'
  | 'capacity_exhausted'
  | 'name_taken'
  | 'rate_limited'
  | 'request_refused'
  | 'operation_failed'
  | 'unreachable'
  | 'unreadable_reply'
  | 'image_unusable'
  | 'worker_silent'
  | 'worker_version'
  | 'package_missing'
  | 'network_unsafe'
  | 'setup_unusable'

/** What is known besides the fault. */
export interface PlatformErrorOptions {
  readonly cause?: unknown
  /** `unknown`: the platform may have done what was asked; look before asking again. `known` by default. */
  readonly outcome?: 'known' | 'unknown'
  /** HTTP status of its reply. */
  readonly status?: number | undefined
  /** Its own code for it, cut and cleaned. */
  readonly platformCode?: string | undefined
  /** Milliseconds that it asks to wait. */
  readonly retryAfterMs?: number | undefined
}

/** A fault of a platform, with its kind. */
export class PlatformError extends SandboxError {
  readonly fault: PlatformFault
  readonly status: number | undefined
  readonly platformCode: string | undefined
  readonly retryAfterMs: number | undefined

  /** `message` is one line that says what to do. */
  constructor(fault: PlatformFault, message: string, options: PlatformErrorOptions = {}) {
    super(CODES[fault], message, options)
    this.fault = fault
    this.status = options.status
    this.platformCode = options.platformCode
    this.retryAfterMs = options.retryAfterMs
  }
}

const CODES: Readonly<Record<PlatformFault, SandboxErrorCode>> = {
  credentials_refused: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  not_found: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  region_unavailable: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  quota_exhausted: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  capacity_exhausted: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  name_taken: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  rate_limited: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  request_refused: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  operation_failed: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  unreachable: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  unreadable_reply: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  image_unusable: 'SALLYPORT_SANDBOX_IMAGE_MISSING',
  worker_silent: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  worker_version: 'SALLYPORT_SANDBOX_IMAGE_MISSING',
  package_missing: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  network_unsafe: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED',
  setup_unusable: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
}
