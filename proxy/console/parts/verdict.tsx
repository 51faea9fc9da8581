/** What became of something, as a word in a colour of its own. */

/** `let out`, `refused` and so on, of an audit line. */
export type Outcome = 'let out' | 'refused' | 'reported' | 'credentials' | 'closed' | 'operator'

const KINDS: Readonly<Record<Outcome, string>> = {
  'let out': 'good',
  refused: 'bad',
  reported: 'warn',
  credentials: 'bad',
  closed: 'quiet',
  operator: 'note',
}

/** As a chip. */
export function Verdict({ of }: { readonly of: Outcome }) {
  return <span class={`chip ${KINDS[of]}`}>{of}</span>
}

/** Of a layer, or of a whole explanation. */
export function Allows({ yes }: { readonly yes: boolean }) {
  return <span class={`chip ${yes ? 'good' : 'bad'}`}>{yes ? 'allows' : 'refuses'}</span>
}
