// Runs of the workflow engine, for those who operate it.
import { useCallback, useId } from 'react'
import { Link, useSearchParams } from 'react-router'
import { WorkflowCount, Workflows as Operation, type RunFields, type WorkflowState } from '../api/generated'
import { useAsk } from '../api/hooks'
import { humanise } from '../form/copy'
import { countText, filterNames, runFilterOf, spans, statusText } from '../logic/runs'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Chip } from '../parts/state'
import { Ago } from '../parts/time'
import { useTyped } from '../parts/typed'

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
  const filter = runFilterOf(search, Date.now())
  const query = useAsk(Operation, { first: 50, after, states, program: null, subject, filter }, { live: (d) => d.workflows.nodes.some((w) => w.state === 'RUNNING') })
  const counted = useAsk(WorkflowCount, { states, program: null, subject, filter }).data?.workflowCount
  const nodes = query.data?.workflows.nodes
  const to = (state: string, conditions = true) => {
    const next = new URLSearchParams({ ...(subject ? { subject } : {}), state })
    for (const name of conditions ? filterNames : []) if (search.has(name)) next.set(name, search.get(name) ?? '')
    return `?${next}`
  }
  return (
    <Page title={subject ? `Workflows of ${subject}` : 'Workflows'} lead={<p>What the engine runs: the programs of drivers, with what they recorded and printed.</p>} beside={<Link to="/functions">Functions</Link>}>
      <nav className="tabs" aria-label="States">
        {filters.map(([k, word]) => (
          <Link key={k} to={to(k)} aria-current={k === key ? 'page' : undefined}>
            {word}
          </Link>
        ))}
        {subject && <Link to={`?state=${key}`}>Of everything</Link>}
      </nav>
      <Filters keep={to(key, false)} />
      <p className="faint" role="status">
        {counted && countText(counted)}
      </p>
      {!nodes ? (
        <Waiting query={query} what="workflows" />
      ) : nodes.length === 0 ? (
        <Empty icon="workflow" title="No workflows here">
          {filter && (
            <p>
              <Link to={to(key, false)}>Without these conditions</Link>
            </p>
          )}
          <p>One starts when an environment is onboarded, an application set up, or a version set rolled out.</p>
          <p>
            <Link to="/">Live versions</Link>
          </p>
        </Empty>
      ) : (
        <Runs runs={nodes} />
      )}
      {query.data && <More info={query.data.workflows.pageInfo} after={after} />}
    </Page>
  )
}

/** A table of runs. */
export function Runs({ runs, label = 'Workflows' }: { runs: RunFields[]; label?: string }) {
  return (
    <div className="scroll card" tabIndex={0} role="region" aria-label={label}>
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
          {runs.map((w) => (
            <tr key={w.workflowId}>
              <th scope="row">
                <Link to={`/workflows/${encodeURIComponent(w.workflowId)}`}>{w.program ? humanise(w.program) : w.workflowId}</Link>
                <div className="faint mono wrap">{w.workflowId}</div>
              </th>
              <td>
                <RunState state={w.state} />
                {w.error && <div className="reason">{w.error}</div>}
                {w.status.length > 0 && <div className="faint wrap">{w.status.map((s) => `${s.key}: ${statusText(s.value)}`).join(', ')}</div>}
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
  )
}

function Filters({ keep }: { keep: string }) {
  const [search, setSearch] = useSearchParams()
  const id = useId()
  const set = useCallback(
    (name: string, value: string) =>
      setSearch(
        (before) => {
          const next = new URLSearchParams(before)
          next.delete('after')
          if (value) next.set(name, value)
          else next.delete(name)
          return next
        },
        { replace: true },
      ),
    [setSearch],
  )
  const text = (name: string, label: string, hint: string) => <Typed key={name} id={`${id}-${name}`} label={label} hint={hint} value={search.get(name) ?? ''} change={(value) => set(name, value)} />
  return (
    <form className="filters" role="search" aria-label="Filter the workflows" onSubmit={(e) => e.preventDefault()}>
      {text('q', 'Id', 'part of it')}
      <span className="pick">
        <label htmlFor={`${id}-since`}>Begun</label>
        <select id={`${id}-since`} value={search.get('since') ?? ''} onChange={(e) => set('since', e.target.value)}>
          <option value="">at any time</option>
          {spans.map(([word, label]) => (
            <option key={word} value={word}>
              in {label}
            </option>
          ))}
        </select>
      </span>
      {text('label', 'Label', 'team=shop')}
      {text('status', 'Reported', 'phase=soak')}
      {filterNames.some((name) => search.has(name)) && <Link to={keep}>Clear</Link>}
    </form>
  )
}

interface TypedProps {
  id: string
  label: string
  hint: string
  value: string
  change: (value: string) => void
}

function Typed({ id, label, hint, value, change }: TypedProps) {
  const [text, setText] = useTyped(value, change)
  return (
    <span className="pick">
      <label htmlFor={id}>{label}</label>
      <input id={id} type="search" placeholder={hint} value={text} onChange={(e) => setText(e.target.value)} />
    </span>
  )
}
