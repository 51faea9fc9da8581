/**
 * Node's young generation is a megabyte, and V8 begins to clear it away when four fifths of it are full: that is in the middle of a worker's start, which it
 * takes 4 ms or more. What a start and a first command leave behind does fit.
 */
import v8 from 'node:v8'

/** Before, the setting had another name, and V8 complains of those that it does not know. */
const FIRST_VERSION = 13

/**
 * For so long it is cleared away only when it is full. Call it when all is loaded that a start needs: modules of Node that are loaded meanwhile are loaded slowly,
 * since their code was compiled under the other setting.
 */
export function putOffCollection(milliseconds: number): void {
  if (Number.parseInt(process.versions.v8) < FIRST_VERSION) return
  v8.setFlagsFromString('--no-minor-gc-task')
  setTimeout(() => v8.setFlagsFromString('--minor-gc-task'), milliseconds).unref()
}
