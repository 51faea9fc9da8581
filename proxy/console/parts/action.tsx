/** A button. One that may not be used says why, and can still be reached by keyboard so that the reason is heard. */
import type { ComponentChildren } from 'preact'
import { useId } from 'preact/hooks'

interface ActionProps {
  readonly onClick?: (() => unknown) | undefined
  readonly kind?: 'plain' | 'main' | 'danger' | 'quiet'
  /** Why it may not be used. */
  readonly why?: string | undefined
  /** Shown beside the button instead of as its title alone. */
  readonly tellsWhy?: boolean
  readonly type?: 'button' | 'submit'
  readonly pressed?: boolean
  readonly children: ComponentChildren
}

/** See above. */
export function Action({
  onClick,
  kind = 'plain',
  why,
  tellsWhy = true,
  type = 'button',
  pressed,
  children,
}: ActionProps) {
  const id = useId()
  const isOff = why !== undefined
  return (
    <span class="action">
      <button
        type={type}
        class={kind}
        aria-disabled={isOff}
        aria-describedby={isOff ? id : undefined}
        aria-pressed={pressed}
        onClick={(event) => {
          if (isOff) event.preventDefault()
          else void onClick?.()
        }}
      >
        {children}
      </button>
      {isOff && (
        <span id={id} class={tellsWhy ? 'why' : 'unheard'}>
          {why}
        </span>
      )}
    </span>
  )
}
