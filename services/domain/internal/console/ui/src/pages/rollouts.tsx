import { Link, useSearchParams } from 'react-router'
import { Rollouts as Operation, type RolloutLine, type RolloutState } from '../api/generated'
import { always, useAsk } from '../api/hooks'
import { Icon } from '../parts/icon'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Queued } from '../parts/queued'
import { Chip, RolloutChip, stateWord } from '../parts/state'
import { Ago } from '../parts/time'
import { displayed } from '../logic/names'

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
      {query.data && !after && (key === 'all' || key === 'active') && <Queued all={query.data.queuedRollouts} application={!application} changed={query.refetch} />}
      {!nodes ? (
        <Waiting query={query} what="rollouts" />
      ) : nodes.length === 0 ? (
        <Empty icon="rollout" title="No rollouts here">
          <p>A rollout takes a version set through the environments of an application’s pipeline.</p>
          <p>
            <Link to="/">Roll out from Live versions</Link>
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
            <th scope="col">Created</th>
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
                <RolloutChip state={r.status} gates={r.openGates.length} /> {r.isRollback && <Chip tone="quiet" icon="back" word="Rollback" />}
              </td>
              <td>
                <Way environments={r.environments} />
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

/** So many environments are named; of more it says how many are done, and where it is. */
const named = 5

/** The environments that a rollout goes through, and how far it has come. */
function Way({ environments }: { environments: RolloutLine['environments'] }) {
  if (environments.length > named) {
    const done = environments.filter((e) => e.state === 'COMPLETED').length
    const at = environments.find((e) => e.state !== 'COMPLETED' && e.state !== 'PENDING')
    return (
      <>
        {done} of {environments.length} done
        {at && (
          <span className="faint">
            ; {displayed(at.environment)}: {stateWord(at.status)}
          </span>
        )}
      </>
    )
  }
  return environments.map((e, i) => (
    <span key={e.id}>
      {i > 0 && ' → '}
      {e.state === 'PENDING' || e.state === 'CANCELLED' ? <span className="faint">{displayed(e.environment)}</span> : <strong>{displayed(e.environment)}</strong>}
      {(e.state === 'COMPLETED' || e.state === 'FAILED') && <> <Icon name={e.state.toLowerCase()} /></>}
      {(e.status === 'ABORTED' || e.status === 'ABORTING') && <> <Icon name="back" /></>}
      <span className="visually-hidden"> ({stateWord(e.status)})</span>
    </span>
  ))
}
