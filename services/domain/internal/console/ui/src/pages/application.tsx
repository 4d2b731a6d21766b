// An application: its services and where their versions come from, its pipeline, its readiness, its rollouts, its triggers.
import { useState } from 'react'
import { Link, useNavigate, useParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { ApplicationPage as Operation, ArchiveApplication, RestoreApplication, RestoreService, RetireService, RetrySetup, type ApplicationPageData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { ability } from '../logic/ability'
import { sourceName } from '../logic/difference'
import { readPipeline } from '../logic/pipeline'
import { span } from '../logic/time'
import { ActButton } from '../parts/act'
import { announce } from '../parts/announce'
import { Archive, Archived } from '../parts/archive'
import { ChainsOfApplication } from '../parts/chains'
import { VersionName } from '../parts/changes'
import { Details, DetailsForm, EditDetails } from '../parts/details'
import { useFirst } from '../parts/fold'
import { FormError, sentence } from '../parts/form'
import { Confirm } from '../parts/confirm'
import { Icon } from '../parts/icon'
import { Empty, NotThere, Page, Waiting } from '../parts/page'
import { Policies } from '../parts/policies'
import { Promote } from '../parts/promote'
import { NotBegun, Queued } from '../parts/queued'
import { Rename } from '../parts/rename'
import { State } from '../parts/state'
import { Ago } from '../parts/time'
import { Triggers } from '../parts/triggers'
import { RolloutTable } from './rollouts'
import { displayed } from '../logic/names'
import { EnvironmentLink, Named } from '../parts/named'

type App = NonNullable<ApplicationPageData['application']>

export function ApplicationPage() {
  const { name = '' } = useParams()
  const query = useAsk(Operation, { name }, { live: (d) => Boolean(d.application?.activeRollout) || Boolean(d.application?.queuedRollout) || Boolean(d.application?.environments.some((e) => e.readiness === 'PENDING')) })
  const [promote, setPromote] = useState(false)
  const navigate = useNavigate()
  const app = query.data?.application
  if (!query.data) {
    return (
      <Page title={name}>
        <Waiting query={query} what="application" />
      </Page>
    )
  }
  if (!app) return <NotThere what="application" to="/applications" list="All applications" />
  return (
    <Page
      title={app.name}
      above={<Link to="/applications">applications</Link>}
      lead={
        <>
          {app.description && <p dir="auto">{app.description}</p>}
          <Details of={app} />
          {app.formerNames.length > 0 && <p className="faint">Formerly {app.formerNames.join(', ')}</p>}
        </>
      }
      beside={
        <>
          <EditDetails of={app} can={ability(app.viewerCan, 'setDetails')} changed={query.refetch} />
          <Rename of={app} what="application" can={ability(app.viewerCan, 'renameApplication')} changed={(name) => void navigate(`/applications/${name}`, { replace: true })} />
          <Link className="button" to={`/applications/${app.name}/metrics`}>
            Delivery
          </Link>
          <Link className="button" to={`/applications/${app.name}/sets`}>
            Version sets
          </Link>
          <ActButton ability={rollOut(app)} className="primary" onClick={() => setPromote(true)}>
            Roll out
          </ActButton>
        </>
      }
    >
      <div className="stack">
        {app.archivedAt && (
          <Archived
            kind="application"
            name={app.name}
            viewerCan={app.viewerCan}
            since={app.archivedAt}
            archivings={app.archivings}
            means={<p>It is rolled out again as before. Versions published meanwhile are not known yet: check its sources.</p>}
            send={async (reason) => accepted((await ask(RestoreApplication, { input: { application: app.id, reason } })).restoreApplication)}
          />
        )}
        <Services app={app} changed={query.refetch} />
        <Pipeline app={app} />
        <section aria-labelledby="rollouts">
          <h2 id="rollouts">Rollouts</h2>
          {app.queuedRollout ? <Queued all={[app.queuedRollout]} application={false} changed={query.refetch} /> : <NotBegun last={app.lastQueuedRollout} newest={app.rollouts.nodes[0]?.createdAt} />}
          {app.rollouts.nodes.length === 0 ? (
            <Empty icon="rollout" title="Not rolled out yet">
              <p>{app.versionSets.nodes.length > 0 ? 'Roll out its newest version set.' : 'The first version set is created once every service has a version: push the images.'}</p>
            </Empty>
          ) : (
            <RolloutTable rows={app.rollouts.nodes} application={false} />
          )}
          <p className="more">
            <Link to={`/rollouts?application=${app.name}`}>All rollouts of {app.name}</Link>
          </p>
        </section>
        <ChainsOfApplication name={app.name} />
        {!app.archivedAt && <Triggers name={app.name} />}
        <Policies app={app} />
        {!app.archivedAt && (
          <Archive
            kind="application"
            name={app.name}
            viewerCan={app.viewerCan}
            means={<p>{app.name} is not rolled out any more, and lists and the matrix omit it. What runs keeps running. Its name stays taken, and its page stays: restore it there.</p>}
            send={async (reason) => accepted((await ask(ArchiveApplication, { input: { application: app.id, reason } })).archiveApplication)}
          />
        )}
      </div>
      {promote && <Promote application={app.name} onClose={() => setPromote(false)} />}
    </Page>
  )
}

/** What is archived cannot be rolled out; the dialog shows every other hindrance, next to what would change. */
function rollOut(app: App) {
  const can = ability(app.viewerCan, 'createRollout')
  return app.archivedAt ? can : { ...can, allowed: true }
}

function Services({ app, changed }: { app: App; changed: () => void }) {
  const [shown, more] = useFirst(app.services.flatMap((s) => s.artifactSources.map((source, i) => ({ s, source, first: i === 0 }))), 25, 'sources')
  const [asked, setAsked] = useState<App['services'][number] | null>(null)
  const [edited, setEdited] = useState<App['services'][number] | null>(null)
  const missing = app.missingVersions
  return (
    <section className="card" aria-labelledby="services">
      <header className="line">
        <h2 id="services">Services</h2>
        {!app.archivedAt && (
          <Link className="button" to={`/applications/${app.name}/services/new`}>
            Add a service
          </Link>
        )}
      </header>
      <div className="scroll" tabIndex={0} role="region" aria-label="Services and sources">
        <table className="list">
          <thead>
            <tr>
              <th scope="col">Service</th>
              <th scope="col">Source</th>
              <th scope="col">Newest version</th>
              <th scope="col">Published</th>
              <th scope="col">
                <span className="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map(({ s, source, first }) => {
              const version = source.versions.nodes[0]
              return (
                <tr key={source.id}>
                  <th scope="row">
                    <Named of={s} /> {s.retiredAt && <span className="faint">retired</span>}
                    {first && s.description && <div className="faint" dir="auto">{s.description}</div>}
                    {first && <Details of={s} />}
                  </th>
                  <td>
                    <Link className="mono" to={`/sources/${source.id}`}>
                      {sourceName(source)}
                    </Link>{' '}
                    <span className="faint">
                      {source.sourceRef}
                      {source.disabledAt && ' · disabled'}
                    </span>
                  </td>
                  <td>{version ? <VersionName version={version} /> : <span className="faint">none yet: push the image</span>}</td>
                  <td>{version && <Ago at={version.createdAt} />}</td>
                  <td className="acts">
                    {first && (
                      <button type="button" onClick={() => setEdited(s)} aria-label={`Details of ${displayed(s)}`}>
                        Details
                      </button>
                    )}
                    {first && <Rename of={s} what="service" can={ability(app.viewerCan, 'renameService')} changed={changed} />}
                    {first && !app.archivedAt && (
                      <button type="button" onClick={() => setAsked(s)} aria-label={`${s.retiredAt ? 'Restore' : 'Retire'} ${displayed(s)}`}>
                        {s.retiredAt ? 'Restore' : 'Retire'}
                      </button>
                    )}
                  </td>
                </tr>
              )
            })}
          </tbody>
        </table>
        {more}
      </div>
      {missing.length > 0 && (
        <>
          <h3>The next version set</h3>
          <ul>
            {missing.map((m) => (
              <li key={m.artifactSource.id} className={m.blocks ? 'reason' : 'faint'}>
                {sentence(m.reason)}
              </li>
            ))}
          </ul>
        </>
      )}
      {edited && (
        <DetailsForm
          of={edited}
          onClose={() => setEdited(null)}
          onDone={() => {
            setEdited(null)
            changed()
          }}
        />
      )}
      {asked && <Serve service={asked} onClose={() => setAsked(null)} />}
    </section>
  )
}

/** Retires a service, or brings it back. */
function Serve({ service, onClose }: { service: App['services'][number]; onClose: () => void }) {
  return service.retiredAt ? (
    <Confirm
      title={`Restore ${displayed(service)}`}
      submit="Restore"
      tone="primary"
      reasoned
      done={`${displayed(service)} is in service again.`}
      send={async (reason) => accepted((await ask(RestoreService, { input: { serviceId: service.id, reason } })).restoreService)}
      onClose={onClose}
    >
      <p>New version sets have it again, and rollouts deploy it. The application is set up again first in each of its environments.</p>
    </Confirm>
  ) : (
    <Confirm
      title={`Retire ${displayed(service)}`}
      submit="Retire"
      reasoned
      done={`${displayed(service)} is retired.`}
      send={async (reason) => accepted((await ask(RetireService, { input: { serviceId: service.id, reason } })).retireService)}
      onClose={onClose}
    >
      <p>No new version set has it, and no new rollout deploys it, also not a rollback. What runs is left as it is, a rollout under way continues, and its history stays.</p>
    </Confirm>
  )
}

function Pipeline({ app }: { app: App }) {
  const change = useChange(
    async (id: string) => accepted((await ask(RetrySetup, { input: { applicationEnvironmentId: id } })).retryApplicationEnvironmentSetup),
    () => announce('It is set up again.'),
  )
  const flow = app.flowDefinition
  return (
    <section className="card" aria-labelledby="pipeline">
      <header className="line">
        <h2 id="pipeline">Pipeline</h2>
        {flow && (
          <span className="faint">
            version {flow.version}, <Ago at={flow.createdAt} />
          </span>
        )}
        <Link className="button" to={`/applications/${app.name}/pipeline`}>
          {flow ? 'New version' : 'Create a pipeline'}
        </Link>
      </header>
      {!flow && <p>The order of environments, and the gates on the way. Nothing can be rolled out before there is one.</p>}
      {flow && (
        <ol className="pipeline">
          {readPipeline(flow.definition).map((step, i) => {
            if (step.kind === 'approval') return <li key={i}><Icon name="gate" /> Approval “{step.gateId}” <span className="faint"><bdi>{step.reason}</bdi></span></li>
            if (step.kind === 'pause') return <li key={i}><Icon name="paused" /> Pause of {span(step.seconds * 1000)}</li>
            if (step.kind === 'other') return <li key={i}><Icon name="pending" /> {step.type}</li>
            const place = app.environments.find((e) => e.environment.name === step.environment)
            return (
              <li key={i}>
                <Icon name="environment" /> <EnvironmentLink of={place?.environment ?? { name: step.environment }} />{' '}
                <span className="faint">{step.gates.length > 0 ? `gates at ${step.gates.map((g) => `${g.weight}\u00a0%`).join(', ')}` : 'no gates'}</span>{' '}
                {place && <State state={place.readiness} />}
                {place?.readinessReason && <p className="problem">{place.readinessReason}</p>}
                {place?.readiness === 'NOT_READY' && (
                  <button type="button" disabled={change.isPending} onClick={() => change.mutate(place.id)}>
                    Set up {displayed(place.environment)} again
                  </button>
                )}
              </li>
            )
          })}
        </ol>
      )}
      <FormError error={change.error} shown={() => false} />
      {flow && (
        <details>
          <summary>The document</summary>
          <pre tabIndex={0}>{JSON.stringify(flow.definition, null, 2)}</pre>
        </details>
      )}
    </section>
  )
}
