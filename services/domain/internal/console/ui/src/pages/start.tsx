// The way from an empty installation to a first rollout: what is done, and the one next thing to do.
import { useState } from 'react'
import { Link } from 'react-router'
import type { BeginningData, EnvironmentFields } from '../api/generated'
import { Icon } from '../parts/icon'
import { Page } from '../parts/page'
import { Promote } from '../parts/promote'

type App = BeginningData['applications']['nodes'][number]

export function Start({ app, environments }: { app: App | null; environments: EnvironmentFields[] }) {
  const [promote, setPromote] = useState(false)
  const ready = environments.some((e) => e.readiness === 'READY')
  const unready = environments.find((e) => e.readiness === 'NOT_READY')
  const set = app?.versionSets.nodes[0]
  const late = app?.environments.find((e) => e.readiness !== 'READY')
  const steps = [
    {
      done: app !== null,
      title: 'An application with its services',
      text: 'What ships together, and which image each service is.',
      act: <Link className="button primary" to="/applications/new">Create an application</Link>,
    },
    {
      done: ready,
      title: 'An environment',
      text: unready ? `${unready.name} is not ready: ${unready.readinessReason}` : 'Where to deploy to, and the driver that does it. Its readiness is checked at once.',
      act:
        environments.length > 0 ? <Link className="button primary" to={`/environments/${environments[0]?.name}`}>Look at {environments[0]?.name}</Link>
        : <Link className="button primary" to="/environments/new">Create an environment</Link>,
    },
    {
      done: Boolean(app?.flowDefinition) && !late,
      title: 'A pipeline',
      text: late ? `Not ready in ${late.environment.name}: ${late.readinessReason || 'being set up'}` : 'The order of environments, the gates on the way, and where the manifests are.',
      act:
        app && !app.flowDefinition ? <Link className="button primary" to={`/applications/${app.name}/pipeline`}>Create a pipeline</Link>
        : <Link className="button primary" to={`/applications/${app?.name ?? ''}`}>Look at {app?.name}</Link>,
    },
    {
      done: Boolean(set),
      title: 'A version of every service',
      text: 'Push the images. The registry tells Lockstep, which makes a version set as soon as every service has a version.',
      act: <p className="faint">This page goes on by itself.</p>,
    },
    {
      done: false,
      title: 'The first rollout',
      text: set ? `${set.name} is ready to go.` : 'Then roll it out.',
      act: <button type="button" className="primary" onClick={() => setPromote(true)}>Roll out {app?.name}</button>,
    },
  ]
  const next = steps.findIndex((s) => !s.done)
  return (
    <Page title="Welcome to Lockstep" lead={<p>Five steps to the first rollout.</p>}>
      <ol className="steps card">
        {steps.map((s, i) => (
          <li key={s.title} className={s.done ? 'done' : i === next ? 'next' : ''} aria-current={i === next ? 'step' : undefined}>
            <span className="mark">{s.done ? <Icon name="completed" /> : i + 1}</span>
            <div>
              <h2>
                {s.title} {s.done && <span className="faint">done</span>}
              </h2>
              {!s.done && <p>{s.text}</p>}
              {i === next && s.act}
            </div>
          </li>
        ))}
      </ol>
      {promote && app && <Promote application={app.name} onClose={() => setPromote(false)} />}
    </Page>
  )
}
