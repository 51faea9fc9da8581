/** All of it or nothing: steps, each with its undo. When one fails, what the earlier ones made is taken away, last first. */
import { SandboxError } from './sandbox-error.ts'
import { within } from './within.ts'

/** For one undo, where the platform does not need longer. */
const UNDO_BUDGET_MS = 10_000

/** One series of steps. */
export class Transaction {
  readonly #undos: { readonly step: string; readonly action: () => Promise<void> }[] = []
  readonly #undoBudgetMs: number

  constructor(undoBudgetMs?: number) {
    this.#undoBudgetMs = undoBudgetMs ?? UNDO_BUDGET_MS
  }

  /** Registers what takes away what a step made, or is about to make: it must cope with either. */
  readonly undo = (step: string, action: () => Promise<void>): void => {
    this.#undos.push({ step, action })
  }

  /**
   * Takes everything away, last first; a failing undo does not keep the others from being tried. Returns what to throw: the fault itself, or, when
   * something could not be taken away, an error that says what is left, with all faults in its cause.
   */
  async rollBack(fault: unknown): Promise<unknown> {
    const failures: { readonly step: string; readonly error: unknown }[] = []
    for (let undo = this.#undos.pop(); undo !== undefined; undo = this.#undos.pop()) {
      const { step, action } = undo
      try {
        await within(this.#undoBudgetMs, action, () => new Error(`not done after ${this.#undoBudgetMs / 1000} s`))
      } catch (error) {
        failures.push({ step, error })
      }
    }
    if (failures.length === 0) return fault
    const left = failures.map(({ step }) => `\`${step}\``).join(', ')
    return new SandboxError(
      'SALLYPORT_SANDBOX_CREATE_FAILED',
      `the sandbox could not be made, and what was made at ${left} could not be taken away: ${messageOf(fault)}`,
      {
        cause: new AggregateError([fault, ...failures.map(({ error }) => error)]),
      },
    )
  }
}

/** What a fault says, if it is one whose words are fit to print. */
export function messageOf(fault: unknown): string {
  return fault instanceof Error ? (fault.message.split('\n')[0] ?? '') : 'unknown fault'
}
