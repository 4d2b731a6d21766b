// The way from an empty installation to a first rollout, on one page: what is done, and the one next thing to do, with its form. The
// server knows how far it is, so one may leave and come back, on another machine too. Each check shows why it is not passed, and
// can be asked again.
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { Link } from 'react-router'
import { useQueryClient } from '@tanstack/react-query'
import { accepted, ask } from '../api/client'
import { Beginning, RetryOnboarding, RetrySetup, type BeginningFields, type EnvironmentFields } from '../api/generated'
import { always, useAsk, useChange } from '../api/hooks'
import { ability } from '../logic/ability'
import { ActButton } from '../parts/act'
import { FormError, sentence } from '../parts/form'
import { Icon } from '../parts/icon'
import { Page, Waiting } from '../parts/page'
import { Promote } from '../parts/promote'
import { Chip } from '../parts/state'
import { ApplicationForm } from './new-application'
import { EnvironmentForm } from './new-environment'
import { PipelineForm } from './new-pipeline'
import { displayed } from '../logic/names'

type App = BeginningFields

interface StepProps {
  title: string
  done: boolean
  /** What it is for, while it is not done; what came of it afterwards. */
  text: ReactNode
  act?: ReactNode
}

export default function Start() {
  const query = useAsk(Beginning, {}, { live: always })
  if (!query.data) {
    return (
      <Page title="Welcome to Lockstep">
        <Waiting query={query} what="way to a first rollout" />
      </Page>
    )
  }
  const { next, first, ready, environments } = query.data
  // The oldest that has not been rolled out yet, of however many; where there is none, the oldest shows how it went.
  return <Way app={next.nodes[0] ?? first.nodes[0] ?? null} ready={ready.nodes.length > 0} environments={environments.nodes} more={environments.pageInfo.hasNextPage} />
}

function Way({ app, ready, environments, more }: { app: App | null; ready: boolean; environments: EnvironmentFields[]; more: boolean }) {
  const [promote, setPromote] = useState(false)
  const client = useQueryClient()
  const look = () => void client.invalidateQueries()
  const set = app?.versionSets.nodes[0]
  const rollout = app?.rollouts.nodes[0]
  const fits = Boolean(app?.flowDefinition) && app?.environments.every((e) => e.readiness === 'READY') === true
  const steps: StepProps[] = [
    {
      title: 'An application with its services',
      done: app !== null,
      text: app ? <Link to={`/applications/${app.name}`}>{app.name}</Link> : 'What ships together, and which image each service is.',
      act: <ApplicationForm done={look} />,
    },
    {
      title: 'An environment',
      done: ready,
      text: environments.length === 0 ? 'Where to deploy to, and the driver that does it. Whether it has what it needs is checked at once.' : <Checks of={environments.map(onboarded)} done={look} more={more && <Link to="/environments">All environments</Link>} />,
      act: environments.length === 0 ? <EnvironmentForm done={look} /> : null,
    },
    {
      title: 'A pipeline, and where the manifests are',
      done: fits,
      text: app?.flowDefinition ? <Checks of={app.environments.map((e) => setUp(app, e))} done={look} /> : 'The order of environments and the gates on the way, and for each environment the repository and the file of every service.',
      act: app && !app.flowDefinition ? <PipelineForm name={app.name} done={look} /> : null,
    },
    {
      title: 'A version of every service',
      done: Boolean(set),
      text: set ? set.name : 'Push the images. The registry notifies Lockstep, which creates a version set as soon as every service has a version.',
      act: app && <Awaited app={app} />,
    },
    {
      title: 'The first rollout',
      done: Boolean(rollout),
      text: rollout ? <Link to={`/rollouts/${rollout.id}`}>Look at the first rollout</Link> : set ? `${set.name} is ready to go.` : 'Then roll it out.',
      act: (
        <button type="button" className="primary" onClick={() => setPromote(true)}>
          Roll out {app?.name}
        </button>
      ),
    },
  ]
  const next = steps.findIndex((s) => !s.done)
  return (
    <Page title="Welcome to Lockstep" lead={<p>{next < 0 ? 'All five steps to the first rollout are done.' : 'Five steps to the first rollout. You may leave at any time and come back: what is done stays done.'}</p>}>
      <Steps steps={steps} next={next} />
      {promote && app && <Promote application={app.name} onClose={() => setPromote(false)} />}
    </Page>
  )
}

function Steps({ steps, next }: { steps: StepProps[]; next: number }) {
  const heading = useRef<HTMLHeadingElement>(null)
  const before = useRef(next)
  // The form that had the focus has disappeared with its step: the focus moves to the next one, and a screen reader announces which that is.
  useEffect(() => {
    if (before.current !== next && !document.activeElement?.closest('main')) heading.current?.focus()
    before.current = next
  }, [next])
  return (
    <ol className="steps card">
      {steps.map((s, i) => (
        <li key={s.title} className={s.done ? 'done' : i === next ? 'next' : ''} aria-current={i === next ? 'step' : undefined}>
          <span className="mark">{s.done ? <Icon name="completed" /> : i + 1}</span>
          <div>
            <h2 ref={i === next ? heading : undefined} tabIndex={-1}>
              {s.title} {s.done && <span className="faint">done</span>}
            </h2>
            <div className="what">{s.text}</div>
            {i === next && s.act}
          </div>
        </li>
      ))}
    </ol>
  )
}

interface Check {
  id: string
  name: string
  to: string
  readiness: string
  reason: string
  /** Where what it found can be mended, other than outside of Lockstep. */
  mend: { to: string; word: string } | null
  again: ReturnType<typeof ability>
  retry: () => Promise<unknown>
}

function onboarded(e: EnvironmentFields): Check {
  return {
    id: e.id, name: displayed(e), to: `/environments/${e.name}`, readiness: e.readiness, reason: e.readinessReason, mend: null,
    again: { action: 'retryEnvironmentOnboarding', allowed: true, reason: null },
    retry: async () => accepted((await ask(RetryOnboarding, { input: { environmentId: e.id } })).retryEnvironmentOnboarding),
  }
}

function setUp(app: App, e: App['environments'][number]): Check {
  return {
    id: e.id, name: displayed(e.environment), to: `/environments/${e.environment.name}`, readiness: e.readiness, reason: e.readinessReason,
    mend: { to: `/applications/${app.name}/pipeline`, word: 'Change the pipeline' },
    again: ability(e.viewerCan, 'retryApplicationEnvironmentSetup'),
    retry: async () => accepted((await ask(RetrySetup, { input: { applicationEnvironmentId: e.id } })).retryApplicationEnvironmentSetup),
  }
}

/** What is checked, with the reason of each that is not passed, and a way to have it checked again. */
function Checks({ of, done, more }: { of: Check[]; done: () => void; more?: ReactNode }) {
  const change = useChange((check: Check) => check.retry(), done)
  return (
    <>
      <ul className="checks">
        {of.map((c) => (
          <li key={c.id}>
            <p className="line">
              <Link to={c.to}>{c.name}</Link>
              {c.readiness === 'READY' ? <Chip tone="good" icon="completed" word="Ready" />
              : c.readiness === 'PENDING' ? <Chip tone="busy" icon="moving" word="Being checked" />
              : <Chip tone="bad" icon="failed" word="Not ready" />}
            </p>
            {c.readiness !== 'READY' && c.reason && <p>{sentence(c.reason)}</p>}
            {c.readiness === 'NOT_READY' && (
              <p className="buttons">
                <ActButton ability={c.again} onClick={() => change.mutate(c)} label={`Check again: ${c.name}`}>
                  Check again
                </ActButton>
                {c.mend && <Link to={c.mend.to}>{c.mend.word}</Link>}
              </p>
            )}
          </li>
        ))}
      </ul>
      {more && <p>{more}</p>}
      <FormError error={change.error} shown={() => false} />
    </>
  )
}

/** What is waited for: the images that have to be pushed. */
function Awaited({ app }: { app: App }) {
  return (
    <>
      <ul className="checks">
        {app.services.map((s) => (
          <li key={s.id}>
            {displayed(s)}: {s.artifactSources.map((a) => <code key={a.id}>{imageOf(a.sourceConfig)}</code>)}
          </li>
        ))}
      </ul>
      <p className="faint">
        This page updates automatically. If a pushed image does not show up, <Link to={`/sources?application=${app.name}`}>check the sources</Link>: each shows when it was last checked, and any error.
      </p>
    </>
  )
}

function imageOf(config: unknown): string {
  const { image, repository } = (config ?? {}) as { image?: string; repository?: string }
  return image ?? repository ?? JSON.stringify(config)
}
