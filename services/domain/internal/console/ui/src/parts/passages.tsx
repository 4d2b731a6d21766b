// The passages of a rollout: which are granted, and what satisfied each; and that its program did not keep to one.
import { useState } from 'react'
import type { LiveRollout } from '../api/hooks'
import { passages, policed, notable } from '../logic/passages'
import { isOver } from '../logic/waiting'
import { useFirst } from './fold'
import { sentence } from './form'
import { Decided } from './decided'
import { Chip } from './state'
import { Ago } from './time'

/** So many are drawn until the others are requested: the last ones, which it did last. */
const most = 10

export function Passages({ live: { rollout, journal } }: { live: LiveRollout }) {
  const [every, setEvery] = useState(false)
  // Undefined for none; null is the creation of the rollout.
  const [asked, setAsked] = useState<string | null | undefined>(undefined)
  const decided = policed(rollout, journal)
  const all = passages(rollout, journal)
  const some = all.filter(notable)
  const [shown, more] = useFirst((every ? all : some).toReversed(), most, 'passages')
  if (all.length === 0) return null
  const toggle = (gateId: string | null) => setAsked(asked === gateId ? undefined : gateId)
  const silent = all.length - some.length
  return (
    <section className="card passages" aria-labelledby="passages">
      <h2 id="passages">Passages</h2>
      <p className="faint">Where it was let on, and what satisfied each condition. The newest first.</p>
      {decided.size > 0 && (
        <p>
          <button type="button" className="quiet" aria-expanded={asked === null} onClick={() => toggle(null)}>
            What policies decided about its creation
          </button>
        </p>
      )}
      {asked === null && <Decided rolloutId={rollout.id} gateId={null} />}
      {shown.length > 0 && (
        <div className="scroll" tabIndex={0} role="region" aria-labelledby="passages">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Passage</th>
                <th scope="col">State</th>
                <th scope="col">What satisfied it</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((p) => (
                <tr key={p.gateId} data-gate={p.gateId}>
                  <th scope="row">{p.title}</th>
                  <td>
                    {p.grantedAt ? (
                      <>
                        <Chip tone="good" icon="completed" word="Granted" /> <Ago at={p.grantedAt} />
                      </>
                    ) : isOver(rollout.state) ? (
                      <Chip tone="quiet" icon="cancelled" word="Never granted" />
                    ) : p.stoppedAt ? (
                      <>
                        <Chip tone="bad" icon="gate" word="Stopped" /> <Ago at={p.stoppedAt} />
                      </>
                    ) : (
                      <>
                        <Chip tone="wait" icon="gate" word="Requested" /> {p.requestedAt && <Ago at={p.requestedAt} />}
                      </>
                    )}
                  </td>
                  <td>
                    {p.grounds.length > 0 ? (
                      <ul className="plain">
                        {p.grounds.map((g) => (
                          <li key={g} dir="auto">
                            {sentence(g)}
                          </li>
                        ))}
                      </ul>
                    ) : (
                      <span className="faint">{p.grantedAt ? 'Not recorded' : isOver(rollout.state) ? 'It ended before' : 'See why it is waiting'}</span>
                    )}
                    {decided.has(p.gateId) && (
                      <>
                        <button type="button" className="quiet" aria-expanded={asked === p.gateId} aria-label={`What policies decided: ${p.title}`} onClick={() => toggle(p.gateId)}>
                          What policies decided
                        </button>
                        {asked === p.gateId && <Decided rolloutId={rollout.id} gateId={p.gateId} />}
                      </>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {more}
      {silent > 0 && (
        <p>
          <button type="button" className="quiet" aria-expanded={every} onClick={() => setEvery(!every)}>
            {every ? 'Hide' : 'Show'} {silent === 1 ? 'one that needed' : `${silent} that needed`} no approval
          </button>
        </p>
      )}
    </section>
  )
}
