// How long a rollout and its environments may take, and how much of that is left.
import type { RolloutPageData } from '../api/generated'
import { remaining } from '../logic/time'
import { Countdown } from './countdown'
import { Chip } from './state'
import { displayed } from '../logic/names'

type Deadline = NonNullable<RolloutPageData['rollout']>['deadlines'][number]

const then = { FAIL: 'it fails', ABORT: 'it is aborted', CANCEL: 'it is cancelled' }

/** Nothing for a rollout without deadlines. */
export function Deadlines({ deadlines: all }: { deadlines: Deadline[] }) {
  const deadlines = all.filter((d) => !d.atWork || ['RUNNING', 'WAITING', 'PASSED'].includes(d.state)) // defaults say nothing before and afterwards
  if (deadlines.length === 0) return null
  return (
    <section className="card" aria-labelledby="deadlines">
      <h2 id="deadlines">Deadlines</h2>
      <ul>
        {deadlines.map((d) => (
          <li key={`${d.kind} ${d.environment?.id ?? ''}`}>
            <One deadline={d} />
          </li>
        ))}
      </ul>
    </section>
  )
}

function One({ deadline: d }: { deadline: Deadline }) {
  const what = d.environment ? displayed(d.environment) : d.kind === 'ABORT' ? 'Taking back' : 'The rollout'
  const whole = remaining(d.seconds * 1_000) + (d.atWork ? ' at work' : '')
  switch (d.state) {
    case 'RUNNING':
      return d.dueAt ? (
        <Countdown since={d.startedAt} until={d.dueAt} label={`Deadline of ${what}`}>
          <strong>{what}</strong> <span className="faint">{whole}, then {then[d.action]}:</span>
        </Countdown>
      ) : null
    case 'WAITING':
      return (
        <p className="line">
          <strong>{what}</strong> <span className="faint">{remaining((d.remainingSeconds ?? 0) * 1_000)} left, then {then[d.action]}</span> <Chip tone="quiet" icon="paused" word={d.atWork ? 'Stands still: only time at work counts' : 'Stands still: waiting for people does not count'} />
        </p>
      )
    case 'PASSED':
      return (
        <p className="line">
          <strong>{what}</strong> <Chip tone="bad" icon="degraded" word={`Passed after ${whole}`} />
        </p>
      )
    default:
      return (
        <p className="line">
          <strong>{what}</strong> <span className="faint">{d.state === 'PENDING' ? `${whole} from its entrance, then ${then[d.action]}` : d.state === 'MET' ? `ended within ${whole}` : 'withdrawn by a retry'}</span>
        </p>
      )
  }
}
