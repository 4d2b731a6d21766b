// What is where: applications down, environments across.
import { useState } from 'react'
import { Link, useSearchParams } from 'react-router'
import { Environments as EnvironmentsOperation, Where as WhereOperation, type WhereData } from '../api/generated'
import { useAsk } from '../api/hooks'
import { isOver } from '../logic/waiting'
import { byTier, cell, gateBefore } from '../logic/where'
import { Icon } from '../parts/icon'
import { Tier } from '../parts/lane'
import { More, Page, Waiting } from '../parts/page'
import { Promote } from '../parts/promote'
import { Chip, State, stateWord } from '../parts/state'
import { Ago } from '../parts/time'
import { Start } from './start'

type App = WhereData['applications']['nodes'][number]

export function Where() {
  const [search] = useSearchParams()
  const after = search.get('after')
  const query = useAsk(WhereOperation, { first: 25, after }, { live: (d) => d.applications.nodes.some((a) => a.rollouts.nodes.some((r) => !isOver(r.state))) })
  const environments = useAsk(EnvironmentsOperation, { first: 200 })
  const [promote, setPromote] = useState<string | null>(null)
  if (!query.data || !environments.data) {
    return (
      <Page title="What is where">
        <Waiting query={query.error ? query : environments} what="matrix" />
      </Page>
    )
  }
  const apps = query.data.applications.nodes
  const all = environments.data.environments.nodes
  const first = apps[0]
  if (!after && apps.length <= 1 && !first?.rollouts.nodes.length) return <Start app={first ?? null} environments={all} />
  const used = new Set(apps.flatMap((a) => [...a.environments.map((e) => e.environment.name), ...a.rollouts.nodes.flatMap((r) => r.environments.map((e) => e.environment.name))]))
  const columns = all.filter((e) => used.has(e.name)).sort(byTier)
  return (
    <Page title="What is where" lead={<p>Which version set is live in each environment, and what is on its way.</p>}>
      <div className="scroll card" tabIndex={0} role="region" aria-label="Applications by environment">
        <table className="matrix">
          <thead>
            <tr>
              <th scope="col">Application</th>
              {columns.map((e) => (
                <th scope="col" key={e.id}>
                  <Link to={`/environments/${e.name}`}>{e.name}</Link>
                  <div>
                    <Tier environment={e} />
                  </div>
                </th>
              ))}
              <th scope="col">
                <span className="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {apps.map((a) => (
              <tr key={a.id}>
                <th scope="row">
                  <Link to={`/applications/${a.name}`}>{a.name}</Link>
                  <Newest app={a} />
                </th>
                {columns.map((e) => (
                  <td key={e.id} data-label={e.name}>
                    <Spot app={a} environment={e.name} />
                  </td>
                ))}
                <td>
                  <button type="button" onClick={() => setPromote(a.name)} aria-label={`Roll out ${a.name}`}>
                    Roll out
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <More info={query.data.applications.pageInfo} after={after} />
      {promote && <Promote application={promote} onClose={() => setPromote(null)} />}
    </Page>
  )
}

function Newest({ app }: { app: App }) {
  const set = app.versionSets.nodes[0]
  if (!set) return <div className="faint">no version set yet</div>
  return (
    <div className="faint">
      newest <Link to={`/applications/${app.name}/sets`}>{set.name}</Link>, <Ago at={set.createdAt} />
    </div>
  )
}

function Spot({ app, environment }: { app: App; environment: string }) {
  const setup = app.environments.find((e) => e.environment.name === environment)
  const { live, liveBy, attempt } = cell(app.rollouts.nodes, environment)
  if (!setup && !live && !attempt) return <span className="faint">not in its pipeline</span>
  const gate = attempt && !isOver(attempt.place.state) ? gateBefore(attempt.rollout, attempt.place) : null
  return (
    <div className="spot">
      <div className="live">
        {live ? (
          <>
            {liveBy ? (
              <Link className="set" to={`/rollouts/${liveBy.rollout.id}`}>
                {live.name}
              </Link>
            ) : (
              <span className="set">{live.name}</span>
            )}
            {liveBy?.place.finishedAt && (
              <span className="faint">
                live <Ago at={liveBy.place.finishedAt} />
              </span>
            )}
          </>
        ) : (
          <span className="faint">nothing live yet</span>
        )}
      </div>
      {attempt && (
        <Link className="attempt" to={`/rollouts/${attempt.rollout.id}`}>
          {gate ? <Chip tone="wait" icon="gate" word={`Waits: ${gate}`} /> : <State state={attempt.place.state} />}
          <span>
            {attempt.rollout.versionSet.name}
            {attempt.rollout.isRollback && ' (rollback)'}
          </span>
        </Link>
      )}
      {setup && setup.readiness !== 'READY' && (
        <span className="notready">
          <Icon name={setup.readiness === 'PENDING' ? 'moving' : 'degraded'} /> {stateWord(setup.readiness)}
          {setup.readinessReason && `: ${setup.readinessReason}`}
        </span>
      )}
    </div>
  )
}
