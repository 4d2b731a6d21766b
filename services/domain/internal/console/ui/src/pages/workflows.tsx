// Runs of the workflow engine, for those who operate it.
import { Link, useSearchParams } from 'react-router'
import { Workflows as Operation, type WorkflowState } from '../api/generated'
import { useAsk } from '../api/hooks'
import { humanise } from '../form/copy'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Chip } from '../parts/state'
import { Ago } from '../parts/time'

const filters: Array<[key: string, word: string, states: WorkflowState[] | null]> = [
  ['all', 'All', null],
  ['active', 'Under way', ['RUNNING', 'PARKED']],
  ['failed', 'Failed', ['FAILED', 'QUARANTINED', 'TERMINATED']],
  ['completed', 'Completed', ['COMPLETED']],
  ['cancelled', 'Cancelled', ['CANCELLED']],
]

const looks: Record<WorkflowState, { tone: 'quiet' | 'busy' | 'wait' | 'good' | 'bad'; icon: string; word: string }> = {
  RUNNING: { tone: 'busy', icon: 'moving', word: 'Running' },
  PARKED: { tone: 'wait', icon: 'clock', word: 'Parked' },
  COMPLETED: { tone: 'good', icon: 'completed', word: 'Completed' },
  FAILED: { tone: 'bad', icon: 'failed', word: 'Failed' },
  CANCELLED: { tone: 'quiet', icon: 'cancelled', word: 'Cancelled' },
  QUARANTINED: { tone: 'bad', icon: 'degraded', word: 'Quarantined' },
  TERMINATED: { tone: 'bad', icon: 'cancelled', word: 'Terminated' },
}

export function RunState({ state }: { state: WorkflowState }) {
  return <Chip {...looks[state]} />
}

/** What a run is for, with a link where there is a page of it. */
export function Subject({ subject }: { subject: string }) {
  if (subject.startsWith('rollout_')) return <Link to={`/rollouts/${subject}`}>{subject}</Link>
  return subject ? <span>{subject}</span> : <span className="faint">nothing that was made here</span>
}

export default function Workflows() {
  const [search] = useSearchParams()
  const key = search.get('state') ?? 'all'
  const subject = search.get('subject')
  const after = search.get('after')
  const states = filters.find(([k]) => k === key)?.[2] ?? null
  const query = useAsk(Operation, { first: 50, after, states, program: null, subject }, { live: (d) => d.workflows.nodes.some((w) => w.state === 'RUNNING') })
  const nodes = query.data?.workflows.nodes
  const to = (state: string) => `?${new URLSearchParams({ ...(subject ? { subject } : {}), state })}`
  return (
    <Page title={subject ? `Workflows of ${subject}` : 'Workflows'} lead={<p>What the engine runs: the programs of drivers, with what they recorded and printed.</p>}>
      <nav className="tabs" aria-label="States">
        {filters.map(([k, word]) => (
          <Link key={k} to={to(k)} aria-current={k === key ? 'page' : undefined}>
            {word}
          </Link>
        ))}
        {subject && <Link to={`?state=${key}`}>Of everything</Link>}
      </nav>
      {!nodes ? (
        <Waiting query={query} what="workflows" />
      ) : nodes.length === 0 ? (
        <Empty icon="workflow" title="No workflows here">
          <p>One starts when an environment is onboarded, an application set up, or a version set rolled out.</p>
          <p>
            <Link to="/">Live versions</Link>
          </p>
        </Empty>
      ) : (
        <div className="scroll card" tabIndex={0} role="region" aria-label="Workflows">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Workflow</th>
                <th scope="col">State</th>
                <th scope="col">For</th>
                <th scope="col">Steps</th>
                <th scope="col">Begun</th>
              </tr>
            </thead>
            <tbody>
              {nodes.map((w) => (
                <tr key={w.workflowId}>
                  <th scope="row">
                    <Link to={`/workflows/${encodeURIComponent(w.workflowId)}`}>{w.program ? humanise(w.program) : w.workflowId}</Link>
                    <div className="faint mono wrap">{w.workflowId}</div>
                  </th>
                  <td>
                    <RunState state={w.state} />
                    {w.error && <div className="reason">{w.error}</div>}
                  </td>
                  <td>
                    <Subject subject={w.subject} />
                  </td>
                  <td>{w.lastSequence}</td>
                  <td>
                    <Ago at={w.createdAt} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {query.data && <More info={query.data.workflows.pageInfo} after={after} />}
    </Page>
  )
}
