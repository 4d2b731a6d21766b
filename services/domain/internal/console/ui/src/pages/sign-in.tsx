// Signing in: with a token, and, where there is an identity provider, there.
import { useQuery } from '@tanstack/react-query'
import { useId, useState } from 'react'
import { rememberedOrganization, signIn, signInOptions } from '../api/client'
import { useChange } from '../api/hooks'
import { Field, FormError } from '../parts/form'
import { Icon } from '../parts/icon'

/** What became of a sign-in at the identity provider, as the server says it in the address. The words are ours. */
const outcomes: Record<string, string> = {
  expired: 'This sign-in was started in another browser, or took too long. Try again.',
  refused: 'The identity provider refused the sign-in.',
  provider: 'The identity provider did not answer correctly. Try again, or ask your administrator to check the log of Lockstep.',
  'no-access': 'You are known to the identity provider, but have no access here. Ask an owner of the organization to add you, or your group.',
  insecure: 'Signing in needs HTTPS, or an address of this machine such as 127.0.0.1.',
  failed: 'Sign-in failed. Try again.',
}

/** The note says what became of the session before. */
export function SignIn({ note = '', done }: { note?: string; done: () => void }) {
  const [token, setToken] = useState('')
  const [byToken, setByToken] = useState(false)
  const id = useId()
  const change = useChange(signIn, done)
  const options = useQuery({ queryKey: ['SignInOptions'], queryFn: signInOptions, staleTime: Infinity })
  const address = new URLSearchParams(window.location.search)
  const outcome = address.get('sign-in')
  address.delete('sign-in')
  const rest = address.toString()
  const here = `${window.location.pathname}${rest ? `?${rest}` : ''}${window.location.hash}`
  const others = options.data ?? []
  // One that gives no access any more is not asked for again.
  const organization = outcome === 'no-access' ? '' : rememberedOrganization()
  const asksToken = byToken || others.length === 0
  return (
    <main className="sign-in">
      <div className="sign-in-card">
        <img src="/favicon.svg" alt="" width="48" height="48" />
        <h1>Lockstep</h1>
        <p className="faint">Several services, one version set, gate by gate.</p>
        {note && !outcome && (
          <p className="faint" role="status">
            {note}
          </p>
        )}
        {outcome && (
          <p className="banner bad" role="alert">
            <Icon name="failed" /> {outcomes[outcome] ?? outcomes.failed}
          </p>
        )}
        {others.map((o) => (
          <a key={o.path} className="button primary" href={`${o.path}?return=${encodeURIComponent(here)}${organization && `&organization=${encodeURIComponent(organization)}`}`}>
            Sign in with {o.label}
          </a>
        ))}
        {!asksToken && (
          <button type="button" className="quiet" onClick={() => setByToken(true)}>
            Sign in with a token
          </button>
        )}
        {asksToken && !options.isPending && (
          <form
            onSubmit={(e) => {
              e.preventDefault()
              change.mutate(token)
            }}
          >
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
            <button type="submit" className={others.length === 0 ? 'primary' : ''} disabled={change.isPending || token === ''}>
              {change.isPending ? 'Signing in…' : 'Sign in'}
            </button>
          </form>
        )}
      </div>
    </main>
  )
}
