// What led to a rollout: through rollbacks and chains, the first cause first.
import { Link } from 'react-router'
import type { LiveRollout } from '../api/hooks'
import { absolute, clockTime } from '../logic/time'
import { Who } from './lane'

type Causes = LiveRollout['rollout']['causes']

const verbs: Record<string, string> = { create: 'was created', fail: 'failed', degrade: 'degraded' }

/** A rollout that nothing but its requester has led to needs no list: the journal has the row. */
export function CausesOfRollout({ causes, own }: { causes: Causes; own: string }) {
  if (causes.length === 0 || (causes.length === 1 && !causes[0]?.triggeredBy)) return null
  return (
    <section className="card" aria-labelledby="causes">
      <h2 id="causes">What led to it</h2>
      <ol className="causes">
        {causes.map((c, i) => (
          <li key={i} className="entry" data-event={c.event}>
            <time dateTime={c.createdAt} title={absolute(c.createdAt)}>
              {clockTime(c.createdAt)}
            </time>
            <div>
              <p>
                {c.subject.startsWith('rollout_') && c.subject !== own ? <Link to={`/rollouts/${c.subject}`}>{c.subject}</Link> : <strong>{c.subject === own ? 'this rollout' : c.subject}</strong>}{' '}
                {verbs[c.event] ?? c.event}
                {c.principalType !== 'system' && (
                  <span className="faint">
                    {' '}
                    by <Who row={c} />
                  </span>
                )}
              </p>
              {(c.reason || c.triggeredBy) && (
                <p className="faint" dir="auto">
                  {[c.reason, c.triggeredBy].filter(Boolean).join(' · ')}
                </p>
              )}
            </div>
          </li>
        ))}
      </ol>
    </section>
  )
}
