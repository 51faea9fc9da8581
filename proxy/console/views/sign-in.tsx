/** Where a token is pasted. It is kept in the memory of this page, and gone with it. */
import { useState } from 'preact/hooks'
import { Action } from '../parts/action.tsx'
import { TextField } from '../parts/field.tsx'
import { FaultNotice, Notice } from '../parts/notice.tsx'
import { refusal, signIn } from '../session.ts'

/** See above. */
export function SignIn() {
  const [token, setToken] = useState('')
  const [fault, setFault] = useState<unknown>()
  const [isAsking, setAsking] = useState(false)
  const enter = async (event: Event): Promise<void> => {
    event.preventDefault()
    setAsking(true)
    try {
      await signIn(token)
    } catch (problem) {
      setFault(problem)
    } finally {
      setAsking(false)
      setToken('')
    }
  }
  return (
    <main id="main" tabIndex={-1} class="sign-in">
      <form onSubmit={(event) => void enter(event)} class="card">
        <h1>Sign in to this gateway</h1>
        {refusal.value !== undefined && <Notice kind="warn">{refusal.value}</Notice>}
        <FaultNotice fault={fault} />
        <TextField
          label="Admin token"
          type="password"
          value={token}
          onInput={setToken}
          required
          wide
          hint="Kept in the memory of this page alone: reloading or closing it signs you out."
        />
        <div class="actions">
          <Action kind="main" type="submit" why={isAsking ? 'Asking the gateway…' : undefined} tellsWhy={false}>
            Sign in
          </Action>
        </div>
        <h2>To get a token, on the machine of the gateway</h2>
        <pre>sallyport token mint --admin --scope read --name YOU --ttl 8h</pre>
        <p class="quiet">
          <code>--scope policy</code> to change policies, <code>--scope token</code> to cut tunnels,{' '}
          <code>--scope admin</code> for everything. What your token does not allow is shown, and says which scope it
          needs.
        </p>
      </form>
    </main>
  )
}
