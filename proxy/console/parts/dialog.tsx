/** A question that must be answered before anything else. The browser's own dialog keeps the focus inside, and Escape means no. */
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef } from 'preact/hooks'
import { Action } from './action.tsx'

interface ConfirmProps {
  readonly title: string
  readonly yes: string
  readonly onYes: () => unknown
  readonly onNo: () => void
  readonly children: ComponentChildren
}

/** Asks as long as it is there. */
export function Confirm({ title, yes, onYes, onNo, children }: ConfirmProps) {
  const id = useId()
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    dialog.current?.showModal()
  }, [])
  return (
    <dialog ref={dialog} aria-labelledby={id} onClose={onNo}>
      <h2 id={id}>{title}</h2>
      {children}
      <div class="actions">
        <Action onClick={() => dialog.current?.close()}>Cancel</Action>
        <Action kind="danger" onClick={onYes}>
          {yes}
        </Action>
      </div>
    </dialog>
  )
}
