/** A text from outside: a host, a name, a target. It is a text and nothing else: never markup, never a link, and what can't be seen in it is shown. */
import { piecesOf, visible } from '../visible.ts'

/** `isolate`d, so that letters that run from right to left move nothing beside them. */
export function Outside({ text, absent = '–' }: { readonly text: string | undefined; readonly absent?: string }) {
  if (text === undefined || text === '') return <span class="absent">{absent}</span>
  return (
    <bdi class="outside" title={visible(text)}>
      {piecesOf(text).map(({ text: piece, isUnseen }) => (isUnseen ? <span class="unseen">{piece}</span> : piece))}
    </bdi>
  )
}
