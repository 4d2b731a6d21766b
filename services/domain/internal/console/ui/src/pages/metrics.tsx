// How an application is delivered: DORA's metrics by environment, for a window that is in the address.
import { useId } from 'react'
import { Link, useParams, useSearchParams } from 'react-router'
import { DeliveryMetrics as Operation, type DeliveryMetricsData } from '../api/generated'
import { useAsk } from '../api/hooks'
import { Empty, Page, Waiting } from '../parts/page'
import { EnvironmentLink } from '../parts/named'

type Metrics = DeliveryMetricsData['deliveryMetrics'][number]

const windows = [7, 30, 90, 365]
const hour = 3_600_000

export default function MetricsPage() {
  const { name = '' } = useParams()
  const [search, setSearch] = useSearchParams()
  const days = windows.find((d) => String(d) === search.get('days')) ?? 30
  // Whole hours: the query stays the same while a person looks at the answer.
  const since = new Date(Math.floor(Date.now() / hour) * hour - days * 24 * hour).toISOString()
  const query = useAsk(Operation, { application: name, since })
  return (
    <Page
      title={`Delivery of ${name}`}
      above={<Link to={`/applications/${name}`}>{name}</Link>}
      lead={<p>How fast changes reach each environment, and how often that goes wrong. Compare an application with itself, over time, and not with others.</p>}
      beside={<Days days={days} choose={(d) => setSearch({ days: d }, { replace: true })} />}
    >
      {!query.data ? <Waiting query={query} what="metrics" /> : <Answer all={query.data.deliveryMetrics} days={days} name={name} />}
    </Page>
  )
}

function Days({ days, choose }: { days: number; choose: (days: string) => void }) {
  const id = useId()
  return (
    <span className="pick">
      <label htmlFor={id}>Window</label>
      <select id={id} value={days} onChange={(e) => choose(e.target.value)}>
        {windows.map((d) => (
          <option key={d} value={d}>
            {d} days
          </option>
        ))}
      </select>
    </span>
  )
}

function Answer({ all, days, name }: { all: Metrics[]; days: number; name: string }) {
  if (all.length === 0) {
    return (
      <Empty icon="environment" title="No environments yet">
        <p>
          A <Link to={`/applications/${name}/pipeline`}>pipeline</Link> says which environments {name} is deployed to.
        </p>
      </Empty>
    )
  }
  if (all.every((m) => m.deployments + m.failures + m.cancelled === 0)) {
    return (
      <Empty icon="rollout" title={`Nothing was deployed in ${days} days`}>
        <p>There is nothing to measure in this window. An active rollout counts once it has ended in an environment.</p>
      </Empty>
    )
  }
  return (
    <div className="stack">
      <div className="scroll card" tabIndex={0} role="region" aria-label="Metrics by environment">
        <table className="list">
          <thead>
            <tr>
              <th scope="col">Environment</th>
              <th scope="col">Deployments</th>
              <th scope="col">Lead time</th>
              <th scope="col">Waiting on people</th>
              <th scope="col">Automation time</th>
              <th scope="col">Change fail rate</th>
              <th scope="col">Rework rate</th>
              <th scope="col">Recovery time</th>
            </tr>
          </thead>
          <tbody>
            {all.map((m) => (
              <tr key={m.environment.id}>
                <th scope="row">
                  <EnvironmentLink of={m.environment} />
                </th>
                <td>
                  {m.deployments} <div className="faint">{perDay(m.deploymentsPerDay)}</div>
                </td>
                <td><Times of={m.leadTime} /></td>
                <td><Times of={m.leadTimePeople} /></td>
                <td><Times of={m.leadTimeMachine} /></td>
                <td><Rate of={m.changeFailRate} says={`${m.failures} failed`} /></td>
                <td><Rate of={m.reworkRate} says={`${m.reworked} reworked`} /></td>
                <td>
                  <Times of={m.recoveryTime} />
                  {m.unrecovered > 0 && <p className="problem">{m.unrecovered} not recovered</p>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <details>
        <summary>What is counted</summary>
        <dl>
          <dt>Lead time</dt>
          <dd>From the version set to the end of its first deployment here. </dd>
          <dt>Waiting on people</dt>
          <dd>The part of the lead time before the rollout was requested, while a gate waited for approval, and while the rollout was paused.</dd>
          <dt>Automation time</dt>
          <dd>The rest of the lead time, soak times included.</dd>
          <dt>Change fail rate</dt>
          <dd>Deployments that failed, were aborted, or were rolled back, of all that were completed, failed or aborted.</dd>
          <dt>Rework rate</dt>
          <dd>Rollbacks, and what was the first to be completed after a failure, of the completed deployments.</dd>
          <dt>Recovery time</dt>
          <dd>From the end of a deployment that failed or was rolled back to the end of the next one that was completed.</dd>
        </dl>
      </details>
    </div>
  )
}

/** The median, and beside it how long nine in ten took at most. */
function Times({ of }: { of: Metrics['leadTime'] }) {
  if (!of) return <None />
  return (
    <>
      {lasting(of.median)} <div className="faint">90&nbsp;%: {lasting(of.p90)}</div>
    </>
  )
}

function Rate({ of, says }: { of: number | null; says: string }) {
  if (of === null) return <None />
  return (
    <>
      {Math.round(of * 100)}&nbsp;% <div className="faint">{says}</div>
    </>
  )
}

function None() {
  return (
    <span className="faint">
      <span aria-hidden="true">–</span>
      <span className="visually-hidden">nothing to measure</span>
    </span>
  )
}

function perDay(n: number): string {
  return n >= 1 || n === 0 ? `${n.toFixed(1)} a day` : n * 7 >= 1 ? `${(n * 7).toFixed(1)} a week` : `${(n * 30).toFixed(1)} in 30 days`
}

/** Seconds with the two greatest units that say something: "2 d 3 h", "1 h 10 min", "45 s". */
function lasting(seconds: number): string {
  const units: Array<[name: string, size: number]> = [['d', 86_400], ['h', 3_600], ['min', 60], ['s', 1]]
  const whole = Math.round(seconds)
  const first = units.findIndex(([, size]) => whole >= size)
  if (first < 0) return '0\u00a0s'
  let left = whole
  return units
    .slice(first, first + 2)
    .map(([unit, size]) => {
      const n = Math.floor(left / size)
      left -= n * size
      return n > 0 ? `${n}\u00a0${unit}` : ''
    })
    .join(' ')
    .trim()
}
