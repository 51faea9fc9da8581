/** Options that nobody reads: a limit that is misspelt would be no limit, and nobody would notice. */

/** The names of all options of a kind; a compiler says when one is missing. */
export type KnownOptions<T> = Readonly<Record<keyof T, true>>

/** @throws TypeError for an option of `what` that there is not */
export function checkKnown(what: string, given: object, known: Readonly<Record<string, true>>): void {
  for (const [name, value] of Object.entries(given))
    if (value !== undefined && !Object.hasOwn(known, name))
      throw new TypeError(`\`${name}\` is no option of ${what}; there are \`${Object.keys(known).join('`, `')}\``)
}
