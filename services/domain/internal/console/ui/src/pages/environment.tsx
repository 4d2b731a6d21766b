import { Link, useNavigate, useParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { ArchiveEnvironment, EnvironmentPage as Operation, RestoreEnvironment, RetryOnboarding, type EnvironmentPageData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { optionWords, wordsFor } from '../form/copy'
import { ability } from '../logic/ability'
import { ActButton } from '../parts/act'
import { announce } from '../parts/announce'
import { RequiredApproval } from '../parts/approval'
import { RequiredChecks } from '../parts/checks'
import { Archive, Archived } from '../parts/archive'
import { ChangeEnvironment } from '../parts/binding'
import { ControlChips, Controls } from '../parts/control'
import { Details, EditDetails } from '../parts/details'
import { useFirst } from '../parts/fold'
import { Pin } from '../parts/freeze'
import { FormError } from '../parts/form'
import { NotThere, Page, Waiting } from '../parts/page'
import { Chip, State } from '../parts/state'
import { Ago } from '../parts/time'
import { RolloutTable } from './rollouts'
import { displayed, other } from '../logic/names'
import { Named } from '../parts/named'
import { Rename } from '../parts/rename'

type Environment = NonNullable<EnvironmentPageData['environment']>

export function EnvironmentPage() {
  const { name = '' } = useParams()
  const navigate = useNavigate()
  const query = useAsk(Operation, { name }, { live: (d) => d.environment?.readiness === 'PENDING', follows: (touched, d) => d.rollouts.nodes.length < 10 || d.rollouts.nodes.some((r) => touched.rollouts.has(r.id)) })
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
      title={displayed(environment)}
      above={<Link to="/environments">environments</Link>}
      lead={
        <p className="line">
          <State state={environment.readiness} />
          <ControlChips environment={environment} />
          <span className="faint">
            {environment.tier.toLowerCase()}, created <Ago at={environment.createdAt} />
            {other(environment) && <>, made as <code>{environment.name}</code></>}
          </span>
        </p>
      }
    >
      <div className="stack">
        {environment.description && <p dir="auto">{environment.description}</p>}
        <Details of={environment} />
        <p className="buttons">
          <EditDetails of={environment} can={ability(environment.viewerCan, 'setDetails')} changed={query.refetch} />
          <Rename of={environment} what="environment" can={ability(environment.viewerCan, 'renameEnvironment')} changed={() => (name === environment.name ? void query.refetch() : void navigate(`/environments/${environment.name}`, { replace: true }))} />
        </p>
        {environment.archivedAt && (
          <Archived
            kind="environment"
            name={displayed(environment)}
            viewerCan={environment.viewerCan}
            since={environment.archivedAt}
            archivings={environment.archivings}
            means={<p>It is onboarded anew: rollouts go to {displayed(environment)} again once its driver says that it is ready.</p>}
            send={async (reason) => accepted((await ask(RestoreEnvironment, { input: { environmentId: environment.id, reason } })).restoreEnvironment)}
          />
        )}
        <section className={environment.readiness === 'NOT_READY' ? 'card why bad' : 'card'} aria-labelledby="readiness">
          <h2 id="readiness">Readiness</h2>
          {environment.readinessReason && <p>{environment.readinessReason}</p>}
          <p className="faint">{explain}</p>
          <p>
            <ActButton
              ability={environment.readiness === 'PENDING' ? { action: 'retryEnvironmentOnboarding', allowed: false, reason: 'It is being checked now' } : ability(environment.viewerCan, 'retryEnvironmentOnboarding')}
              className={environment.readiness === 'NOT_READY' ? 'primary' : undefined}
              onClick={() => change.mutate(environment.id)}
            >
              Onboard again
            </ActButton>
          </p>
          <FormError error={change.error} shown={() => false} />
        </section>
        <Agent contact={environment.contact} />
        <Services healths={environment.healths} />
        <RequiredApproval environment={environment} />
        {!environment.archivedAt && <Controls environment={environment} />}
        <RequiredChecks environment={environment} />
        {!environment.archivedAt && <Pin environment={environment} changed={query.refetch} />}
        <section className="card" aria-labelledby="newest">
          <h2 id="newest">Newest rollouts that go here</h2>
          {query.data.rollouts.nodes.length > 0 ? <RolloutTable rows={query.data.rollouts.nodes} application /> : <p className="faint">None yet.</p>}
        </section>
        <section className="card" aria-labelledby="bindings">
          <h2 id="bindings">Driver, newest binding first</h2>
          {!environment.archivedAt && <ChangeEnvironment environment={environment} />}
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
        {!environment.archivedAt && (
          <Archive
            kind="environment"
            name={displayed(environment)}
            viewerCan={environment.viewerCan}
            means={<p>No rollout goes to {displayed(environment)} any more, and lists omit it. What runs there keeps running. Its page stays: restore it there.</p>}
            send={async (reason) => accepted((await ask(ArchiveEnvironment, { input: { environmentId: environment.id, reason } })).archiveEnvironment)}
          />
        )}
      </div>
    </Page>
  )
}

/** Whether anybody can be reached who acts here, and since when. */
function Agent({ contact }: { contact: Environment['contact'] }) {
  return (
    <section className={contact && !contact.reachable ? 'card why bad' : 'card'} aria-labelledby="agent">
      <h2 id="agent">Agent</h2>
      {!contact && <p className="faint">No agent has reported yet. It will after the first rollout or a new check.</p>}
      {contact && (
        <p className="line">
          {contact.reachable ? <Chip tone="good" icon="completed" word="Can be reached" /> : <Chip tone="bad" icon="offline" word="Cannot be reached" />}
          <span className="faint">
            since <Ago at={contact.since} />, seen <Ago at={contact.observedAt} />
          </span>
        </p>
      )}
      {contact?.reason && <p>{contact.reason}</p>}
      {contact && !contact.reachable && <p className="faint">Rollouts wait here until it is back: look whether the relay of this cluster runs, and whether it can reach NATS.</p>}
    </section>
  )
}

const nameOf = ({ service }: Environment['healths'][number]) => `${service.application.name}/${displayed(service)}`

/** The health of the services that were seen here; those that need attention come first. */
function Services({ healths }: { healths: Environment['healths'] }) {
  const order = ['DEGRADED', 'PROGRESSING', 'UNKNOWN', 'HEALTHY']
  const sorted = [...healths].sort((a, b) => order.indexOf(a.health) - order.indexOf(b.health) || nameOf(a).localeCompare(nameOf(b)))
  const [shown, more] = useFirst(sorted, 25, 'services')
  return (
    <section className="card" aria-labelledby="health">
      <h2 id="health">Health of services</h2>
      {sorted.length === 0 && <p className="faint">No service has been seen here yet.</p>}
      {sorted.length > 0 && (
        <div className="scroll" tabIndex={0} role="region" aria-label="Health of services">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Service</th>
                <th scope="col">Health</th>
                <th scope="col">Since</th>
                <th scope="col">Seen</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((h) => (
                <tr key={h.service.id}>
                  <th scope="row">
                    <Link to={`/applications/${h.service.application.name}`}>{h.service.application.name}</Link>/<Named of={h.service} />
                  </th>
                  <td>
                    <State state={h.health} />
                    {h.reason && <div className="faint">{h.reason}</div>}
                  </td>
                  <td>
                    <Ago at={h.since} />
                  </td>
                  <td>
                    <Ago at={h.observedAt} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {more}
        </div>
      )}
    </section>
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
