/** What goes wrong with a microVM of one's own, and what to do about each. */
import { SandboxError, type SandboxErrorCode } from '../../sandbox-error.ts'

/** Why there is no sandbox. Stable, for programs. */
export type MicrovmFault =
  | 'binary_missing'
  | 'jailer_missing'
  | 'kvm_missing'
  | 'needs_root'
  | 'image_missing'
  | 'image_unusable'
  | 'snapshot_unusable'
  | 'network_failed'
  | 'name_taken'
  | 'quota_exhausted'
  | 'api_refused'
  | 'api_lost'
  | 'machine_ended'
  | 'guest_silent'

/** A fault of a microVM or of what it is made from, with its kind. */
export class MicrovmError extends SandboxError {
  readonly fault: MicrovmFault

  /** `message` is one line that says what to do. */
  constructor(fault: MicrovmFault, message: string, cause?: unknown) {
    super(CODES[fault], message, { cause })
    this.fault = fault
  }
}

const CODES: Readonly<Record<MicrovmFault, SandboxErrorCode>> = {
  binary_missing: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  jailer_missing: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  kvm_missing: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  needs_root: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  image_missing: 'SALLYPORT_SANDBOX_IMAGE_MISSING',
  image_unusable: 'SALLYPORT_SANDBOX_IMAGE_MISSING',
  snapshot_unusable: 'SALLYPORT_SANDBOX_IMAGE_MISSING',
  network_failed: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  name_taken: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  quota_exhausted: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  api_refused: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  api_lost: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  machine_ended: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  guest_silent: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
}

const MAX_TEXT_LENGTH = 300

/** What a program, a guest or a server said, in one bounded line that is fit to print. */
export function printable(text: string): string {
  return text
    .replaceAll(/[^\x20-\x7e]+|`+/g, ' ')
    .trim()
    .slice(0, MAX_TEXT_LENGTH)
}

/** A fault of the file system, said with what was being done. */
export function fileFault(action: string, error: unknown): MicrovmError {
  const { code = 'unknown fault' } = error as NodeJS.ErrnoException
  return code === 'ENOSPC' || code === 'EDQUOT'
    ? new MicrovmError('quota_exhausted', `can't ${action}: the disk is full (${code}); make room`, error)
    : new MicrovmError('image_missing', `can't ${action}: ${code}`, error)
}
