import { useId, useState } from 'react'
import { signIn } from '../api/client'
import { useChange } from '../api/hooks'
import { Field, FormError } from '../parts/form'

export function SignIn({ done }: { done: () => void }) {
  const [token, setToken] = useState('')
  const id = useId()
  const change = useChange(signIn, done)
  return (
    <main className="sign-in">
      <form
        onSubmit={(e) => {
          e.preventDefault()
          change.mutate(token)
        }}
      >
        <img src="/favicon.svg" alt="" width="48" height="48" />
        <h1>Lockstep</h1>
        <p className="faint">Several services, one version set, gate by gate.</p>
        <Field id={id} label="Token" help="On your own machine it is in endpoints.json of the folder that `lockstep dev` was given, and on its screen.">
          <input
            id={id}
            aria-describedby={`${id}-notes`}
            type="password"
            autoComplete="current-password"
            autoFocus
            required
            value={token}
            onChange={(e) => setToken(e.target.value)}
          />
        </Field>
        <FormError error={change.error} shown={() => false} />
        <button type="submit" className="primary" disabled={change.isPending || token === ''}>
          {change.isPending ? 'Signing in…' : 'Sign in'}
        </button>
      </form>
    </main>
  )
}
