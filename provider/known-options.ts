/** Options that nobody reads: a limit that is misspelt would be no limit, and nobody would notice. */

/** The names of all options of a kind; a compiler says when one is missing. */
export type KnownOptions<T> = Readonly<Record<keyof T, true>>

/** @throws TypeError for an option of `what` that there is not, and for what holds no options */
export function checkKnown(what: string, given: unknown, known: Readonly<Record<string, true>>): void {
  if (typeof given !== 'object' || given === null) throw new TypeError(`the options of ${what} are an object`)
  for (const [name, value] of Object.entries(given))
    if (value !== undefined && !Object.hasOwn(known, name))
      throw new TypeError(`\`${name}\` is no option of ${what}; there are \`${Object.keys(known).join('`, `')}\``)
}
