/** Fields of forms: a label, and what is typed or chosen. */
import type { ComponentChildren } from 'preact'
import { useId } from 'preact/hooks'

interface TextFieldProps {
  readonly label: string
  readonly value: string
  readonly onInput: (value: string) => void
  readonly placeholder?: string
  readonly hint?: ComponentChildren
  readonly type?: 'text' | 'password' | 'search'
  readonly required?: boolean
  readonly wide?: boolean
}

/** For one line of text. The browser remembers, corrects and completes nothing of it. */
export function TextField({ label, value, onInput, hint, type = 'text', wide, ...rest }: TextFieldProps) {
  const id = useId()
  const common = {
    id,
    value,
    onInput: (event: { readonly currentTarget: HTMLInputElement }) => onInput(event.currentTarget.value),
    autocomplete: 'off',
    autocapitalize: 'off',
    spellcheck: false,
    'aria-describedby': hint === undefined ? undefined : `${id}-hint`,
    ...rest,
  } as const
  return (
    <div class={wide === true ? 'field wide' : 'field'}>
      <label for={id}>{label}</label>
      {type === 'text' && <input type="text" {...common} />}
      {type === 'search' && <input type="search" {...common} />}
      {type === 'password' && <input type="password" {...common} />}
      {hint !== undefined && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  )
}

interface ChoiceProps<Value extends string> {
  readonly label: string
  readonly value: Value
  readonly options: readonly (readonly [value: Value, text: string])[]
  readonly onChoose: (value: Value) => void
}

/** For one of a few. */
export function Choice<Value extends string>({ label, value, options, onChoose }: ChoiceProps<Value>) {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select
        id={id}
        value={value}
        onChange={(event) => {
          const chosen = options.find(([each]) => each === event.currentTarget.value)
          if (chosen) onChoose(chosen[0])
        }}
      >
        {options.map(([each, text]) => (
          <option value={each} selected={each === value}>
            {text}
          </option>
        ))}
      </select>
    </div>
  )
}
