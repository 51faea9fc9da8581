/** Packages that only some need: loaded when they are, and named when they are not there. */
import { SallyportError } from '../../policies/index.ts'

/**
 * Loads one.
 * @throws SallyportError `SALLYPORT_PACKAGE_MISSING` with the command that installs it
 */
export async function loadPackage<Module>(name: string, load: () => Promise<Module>): Promise<Module> {
  try {
    return await load()
  } catch (error) {
    if (!isMissing(name, error)) throw error
    throw new SallyportError(
      'SALLYPORT_PACKAGE_MISSING',
      `this needs a package that is not installed: \`npm install ${name}\``,
      { cause: error },
    )
  }
}

/** Whether `error` says that this package, and not one that it needs itself, can't be found. */
function isMissing(name: string, error: unknown): boolean {
  return (
    error instanceof Error &&
    'code' in error &&
    error.code === 'ERR_MODULE_NOT_FOUND' &&
    error.message.includes(`'${name}'`)
  )
}
