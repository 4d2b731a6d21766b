// Programs that the engine starts at given times.
import { Link, useSearchParams } from 'react-router'
import { WorkflowSchedules } from '../api/generated'
import { useAsk } from '../api/hooks'
import { whenText } from '../logic/schedules'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Chip } from '../parts/state'
import { Due } from '../parts/time'

export default function Schedules() {
  const [search] = useSearchParams()
  const after = search.get('after')
  const query = useAsk(WorkflowSchedules, { first: 50, after })
  const nodes = query.data?.workflowSchedules.nodes
  return (
    <Page
      title="Schedules"
      above={<Link to="/workflows">workflows</Link>}
      lead={<p>Programs that the engine starts at given times.</p>}
      beside={
        <Link className="button primary" to="/new-schedule">
          New schedule
        </Link>
      }
    >
      {!nodes ? (
        <Waiting query={query} what="schedules" />
      ) : nodes.length === 0 ? (
        <Empty icon="clock" title="No schedules here">
          <p>
            <Link to="/new-schedule">Register one</Link>, or use <code>lockstep schedule register</code>.
          </p>
        </Empty>
      ) : (
        <div className="scroll card" tabIndex={0} role="region" aria-label="Schedules">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Schedule</th>
                <th scope="col">When</th>
                <th scope="col">Next</th>
                <th scope="col">Started</th>
                <th scope="col">Skipped</th>
                <th scope="col">Missed</th>
                <th scope="col">Refused</th>
              </tr>
            </thead>
            <tbody>
              {nodes.map((s) => (
                <tr key={s.name}>
                  <th scope="row">
                    <Link to={`/schedules/${encodeURIComponent(s.name)}`}>{s.name}</Link>
                  </th>
                  <td className="wrap">{whenText(s)}</td>
                  <td>
                    {s.paused ? <Chip tone="wait" icon="paused" word="Paused" /> : s.nextDueAt ? <Due at={s.nextDueAt} /> : <span className="faint">not any more</span>}
                    {s.paused && s.note && <div className="reason">{s.note}</div>}
                  </td>
                  <td>{s.started}</td>
                  <td>{s.skipped}</td>
                  <td>{s.missed}</td>
                  <td>{s.refused}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {query.data && <More info={query.data.workflowSchedules.pageInfo} after={after} />}
    </Page>
  )
}
