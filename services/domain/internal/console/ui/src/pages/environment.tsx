import { Link, useParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { EnvironmentPage as Operation, RetryOnboarding } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { optionWords, wordsFor } from '../form/copy'
import { announce } from '../parts/announce'
import { FormError } from '../parts/form'
import { NotThere, Page, Waiting } from '../parts/page'
import { State } from '../parts/state'
import { Ago } from '../parts/time'

export function EnvironmentPage() {
  const { name = '' } = useParams()
  const query = useAsk(Operation, { name }, { live: (d) => d.environment?.readiness === 'PENDING' })
  const environment = query.data?.environment
  const change = useChange(
    async (id: string) => accepted((await ask(RetryOnboarding, { input: { environmentId: id } })).retryEnvironmentOnboarding),
    () => announce(`${name} is onboarded again.`),
  )
  if (!query.data) {
    return (
      <Page title={name}>
        <Waiting query={query} what="environment" />
      </Page>
    )
  }
  if (!environment) return <NotThere what="environment" to="/environments" list="All environments" />
  const explain = {
    READY: 'The driver has found everything that it needs.',
    PENDING: 'The driver looks at it now.',
    NOT_READY: 'Mend what is missing, then onboard it again.',
  }[environment.readiness]
  return (
    <Page
      title={environment.name}
      above={<Link to="/environments">environments</Link>}
      lead={
        <p className="line">
          <State state={environment.readiness} />
          <span className="faint">
            {environment.tier.toLowerCase()}, created <Ago at={environment.createdAt} />
          </span>
        </p>
      }
    >
      <div className="stack">
        {environment.description && <p>{environment.description}</p>}
        <section className={environment.readiness === 'NOT_READY' ? 'card why bad' : 'card'} aria-labelledby="readiness">
          <h2 id="readiness">Readiness</h2>
          {environment.readinessReason && <p>{environment.readinessReason}</p>}
          <p className="faint">{explain}</p>
          <p>
            <button type="button" className={environment.readiness === 'NOT_READY' ? 'primary' : undefined} disabled={change.isPending || environment.readiness === 'PENDING'} onClick={() => change.mutate(environment.id)}>
              Onboard again
            </button>
          </p>
          <FormError error={change.error} shown={() => false} />
        </section>
        <section className="card" aria-labelledby="bindings">
          <h2 id="bindings">Driver, newest binding first</h2>
          <ol className="bindings">
            {environment.driverBindings.map((b) => (
              <li key={b.id}>
                <p>
                  <strong className="mono">{b.driverRef}</strong>{' '}
                  <span className="faint">
                    binding {b.version}, <Ago at={b.createdAt} />
                  </span>
                </p>
                <Config driver={b.driverRef} config={b.driverConfig} />
              </li>
            ))}
          </ol>
        </section>
      </div>
    </Page>
  )
}

/** A driver's configuration with the words of its form. */
function Config({ driver, config }: { driver: string; config: unknown }) {
  const entries = Object.entries((config ?? {}) as Record<string, unknown>)
  return (
    <dl className="config">
      {entries.map(([key, value]) => {
        const words = wordsFor(driver, [key])
        return (
          <div key={key}>
            <dt>{words.label}</dt>
            <dd>{typeof value === 'object' ? <pre>{JSON.stringify(value, null, 2)}</pre> : words.options ? optionWords(words, value) : String(value)}</dd>
          </div>
        )
      })}
    </dl>
  )
}
