import { Link, useSearchParams } from 'react-router'
import { Rollouts as Operation, type RolloutLine, type RolloutState } from '../api/generated'
import { always, useAsk } from '../api/hooks'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Chip, RolloutChip } from '../parts/state'
import { Ago } from '../parts/time'

const filters: Array<[key: string, word: string, states: RolloutState[] | null]> = [
  ['all', 'All', null],
  ['active', 'Under way', ['PENDING', 'IN_PROGRESS', 'PAUSED']],
  ['failed', 'Failed', ['FAILED']],
  ['completed', 'Completed', ['COMPLETED']],
  ['cancelled', 'Cancelled', ['CANCELLED']],
]

export function Rollouts() {
  const [search] = useSearchParams()
  const key = search.get('state') ?? 'all'
  const application = search.get('application')
  const after = search.get('after')
  const states = filters.find(([k]) => k === key)?.[2] ?? null
  const query = useAsk(Operation, { first: 50, after, application, states }, { follows: always })
  const nodes = query.data?.rollouts.nodes
  const to = (state: string) => `?${new URLSearchParams({ ...(application ? { application } : {}), state })}`
  return (
    <Page title={application ? `Rollouts of ${application}` : 'Rollouts'}>
      <nav className="tabs" aria-label="States">
        {filters.map(([k, word]) => (
          <Link key={k} to={to(k)} aria-current={k === key ? 'page' : undefined}>
            {word}
          </Link>
        ))}
        {application && <Link to={`?state=${key}`}>All applications</Link>}
      </nav>
      {!nodes ? (
        <Waiting query={query} what="rollouts" />
      ) : nodes.length === 0 ? (
        <Empty icon="rollout" title="No rollouts here">
          <p>A rollout takes a version set through the environments of an application’s pipeline.</p>
          <p>
            <Link to="/">Roll out from what is where</Link>
          </p>
        </Empty>
      ) : (
        <RolloutTable rows={nodes} application={!application} />
      )}
      {query.data && <More info={query.data.rollouts.pageInfo} after={after} />}
    </Page>
  )
}

export function RolloutTable({ rows, application }: { rows: RolloutLine[]; application: boolean }) {
  return (
    <div className="scroll card" tabIndex={0} role="region" aria-label="Rollouts">
      <table className="list">
        <thead>
          <tr>
            <th scope="col">Rollout</th>
            <th scope="col">State</th>
            <th scope="col">Environments</th>
            <th scope="col">Made</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((r) => (
            <tr key={r.id}>
              <th scope="row">
                <Link to={`/rollouts/${r.id}`}>
                  {application && `${r.application.name}: `}
                  {r.versionSet.name}
                </Link>
                <div className="faint">{r.id}</div>
              </th>
              <td>
                <RolloutChip state={r.state} gates={r.openGates.length} /> {r.isRollback && <Chip tone="quiet" icon="back" word="Rollback" />}
              </td>
              <td>
                {r.environments.map((e, i) => (
                  <span key={e.id}>
                    {i > 0 && ' → '}
                    {e.state === 'COMPLETED' || e.state === 'IN_PROGRESS' ? <strong>{e.environment.name}</strong> : <span className="faint">{e.environment.name}</span>}
                  </span>
                ))}
              </td>
              <td>
                <Ago at={r.createdAt} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
