// An environment of a rollout as a lane: services down, gates across, all moving together. It is a table, because it is one.
import { useState } from 'react'
import { urgentFirst, type Deployment, type Lane, type Mark, type Stop } from '../logic/gates'
import { shortDigest } from '../logic/difference'
import { skipWords } from '../logic/scope'
import { span } from '../logic/time'
import { useFirst } from './fold'
import { Icon } from './icon'
import { Chip, State } from './state'
import { Ago } from './time'
import { displayed } from '../logic/names'
import { EnvironmentLink, Named } from './named'

/** How many services of an environment are drawn before a person asks for the others. */
const most = 20

const marks: Record<Mark, { icon: string; word: string }> = {
  passed: { icon: 'completed', word: 'Passed' },
  here: { icon: 'here', word: 'At gate' },
  next: { icon: 'moving', word: 'On its way' },
  ahead: { icon: 'pending', word: 'Not reached' },
  skipped: { icon: 'skipped', word: 'Not needed' },
  stopped: { icon: 'failed', word: 'Stopped' },
  back: { icon: 'back', word: 'Taken back' },
}

function MarkCell({ mark, last }: { mark: Mark; last?: Deployment }) {
  if (last && mark !== 'ahead') {
    return (
      <td className={`mark ${mark}`}>
        <State state={last.status} />
      </td>
    )
  }
  const look = marks[mark]
  return (
    <td className={`mark ${mark}`}>
      <span>
        <Icon name={look.icon} />
        {look.word}
      </span>
    </td>
  )
}

/** What a deployment is outside of Lockstep, such as a pull request. */
function Outside({ link }: { link: NonNullable<Deployment['link']> }) {
  const name = [link.namespace, link.name].filter(Boolean).join('/')
  return (
    <div className="faint">
      {link.url ? (
        <a href={link.url} target="_blank" rel="noopener noreferrer">
          {name}
        </a>
      ) : (
        name
      )}
      {link.status && ` ${link.status}`}
    </div>
  )
}

/** The tier, where the name does not say it already. */
export function Tier({ environment }: { environment: { name: string; displayName?: string; tier: string } }) {
  const tier = environment.tier.toLowerCase()
  return tier === displayed(environment).toLowerCase() ? null : <span className="faint tier">{tier}</span>
}

/** Brief: one of many, of which only those that move are open from the beginning. */
export function LaneView({ lane, target, brief }: { lane: Lane; target: string; brief: boolean }) {
  const { place, plan, rows, arrived } = lane
  const [chosen, setChosen] = useState<boolean | null>(null)
  const open = chosen ?? !(brief && ['PENDING', 'COMPLETED', 'CANCELLED'].includes(place.state))
  const [shown, more] = useFirst(rows.length > most ? urgentFirst(rows) : rows, most, 'services')
  const from = place.previousVersionSet
  return (
    <li className={`card lane ${place.status.toLowerCase()}`}>
      <header>
        <h2>
          <EnvironmentLink of={place.environment} /> <Tier environment={place.environment} />
        </h2>
        <State state={place.status} />
        <p className="faint">
          {laneWords(place.status, from?.name, target)}
          {place.follows.length > 0 && <> · follows {place.follows.map(displayed).join(', ')}</>}
          {place.startedAt && (
            <>
              {' · '}
              {place.finishedAt ? `took ${span(Date.parse(place.finishedAt) - Date.parse(place.startedAt))}` : <>started <Ago at={place.startedAt} /></>}
            </>
          )}
        </p>
        {brief && (
          <button type="button" className="quiet" aria-expanded={open} onClick={() => setChosen(!open)}>
            {open ? 'Hide' : 'Show'} {rows.length === 1 ? 'its service' : `${rows.length} services`}
            <span className="visually-hidden"> in {displayed(place.environment)}</span>
          </button>
        )}
      </header>
      {open && (
        <div className="scroll" tabIndex={0} role="region" aria-label={`Services and gates in ${displayed(place.environment)}`}>
          <table className="gates">
            <thead>
              <tr>
                <th scope="col">Service</th>
                {plan.map((g, i) => (
                  <th scope="col" key={g.weight}>
                    {g.weight}&nbsp;%
                    <div className="faint">
                      {arrived[i]} of {rows.length} at gate
                    </div>
                    {(g.soak > 0 || g.approval) && <div className="faint">{[g.soak > 0 && `${span(g.soak * 1000)} soak`, g.approval && 'approval'].filter(Boolean).join(' · ')}</div>}
                  </th>
                ))}
                <th scope="col">
                  Live<div className="faint">full traffic</div>
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map((r) => (
                <tr key={r.deployment.id}>
                  <th scope="row">
                    <Named of={r.deployment.service} />
                    <div className="faint">
                      {r.deployment.versions.map((v) => (
                        <span key={v.id} title={v.digest}>
                          {v.name}{' '}
                        </span>
                      ))}
                    </div>
                    {r.deployment.snapshot && (
                      <code className="faint" title={`${r.deployment.snapshot.commitSha || "no commit"}, manifest ${shortDigest(r.deployment.snapshot.manifestDigest)}`}>
                        {r.deployment.snapshot.commitSha.slice(0, 8) || shortDigest(r.deployment.snapshot.manifestDigest)}
                      </code>
                    )}
                    {r.deployment.link && <Outside link={r.deployment.link} />}
                  </th>
                  {r.marks.map((m, i) => (
                    <MarkCell key={plan[i]?.weight ?? i} mark={m} />
                  ))}
                  <MarkCell mark={r.end} last={r.deployment} />
                </tr>
              ))}
            </tbody>
          </table>
          {more}
        </div>
      )}
    </li>
  )
}

/** Why a part of the pipeline is left out of this rollout. */
function LeftWords({ why }: { why: string | null }) {
  if (why === null) return null
  return (
    <span className="faint">
      : <bdi>{why}</bdi>
    </span>
  )
}

/** How a gate was closed. */
const resolutions: Record<string, { tone: 'good' | 'bad' | 'wait'; icon: string; word: string }> = {
  approve: { tone: 'good', icon: 'completed', word: 'Approved' },
  reject: { tone: 'bad', icon: 'failed', word: 'Rejected' },
  expire: { tone: 'wait', icon: 'clock', word: 'Expired' },
  break_glass: { tone: 'bad', icon: 'degraded', word: 'Overridden by break-glass' },
}

/** What becomes of what is live, in the words of its state. */
function laneWords(status: Lane['place']['status'], from: string | undefined, target: string): string {
  if (status === 'ABORTED') return from ? `${target} was taken back to ${from}` : `${target} was taken back`
  if (status === 'ABORTING') return from ? `${target} is being taken back to ${from}` : `${target} is being taken back`
  if (!from) return `first: ${target}`
  return from === target ? `${target}, as before` : `${from} → ${target}`
}

export function StopView({ stop, over, target }: { stop: Stop; over: boolean; target: string }) {
  if (stop.kind === 'skipped') {
    return (
      <li className="stop">
        <Chip tone="quiet" icon="skipped" word="Skipped" />
        <span>
          <EnvironmentLink of={stop.environment} /> <Tier environment={stop.environment} /> <span className="faint">{skipWords(stop.cause, target)}</span>
        </span>
      </li>
    )
  }
  if (stop.kind === 'pause') {
    return (
      <li className="stop">
        {stop.left === null ? <Icon name="paused" /> : <Chip tone="quiet" icon="skipped" word="Skipped" />} Pause of {span(stop.seconds * 1000)} <bdi>{stop.name}</bdi>
        <LeftWords why={stop.left} />
      </li>
    )
  }
  if (stop.kind === 'other') {
    return (
      <li className="stop">
        {stop.left === null ? <Icon name="pending" /> : <Chip tone="quiet" icon="skipped" word="Skipped" />} {stop.type} <bdi>{stop.name}</bdi>
        <LeftWords why={stop.left} />
      </li>
    )
  }
  if (stop.kind === 'left') {
    return (
      <li className="stop">
        <Chip tone="quiet" icon="skipped" word="Skipped" /> <bdi>{stop.what}</bdi>
        <LeftWords why={stop.why} />
      </li>
    )
  }
  const { gateId, reason, open, resolution } = stop
  return (
    <li className={open ? 'stop open' : 'stop'}>
      {open ? (
        <Chip tone="wait" icon="gate" word="Waits for approval" />
      ) : resolution ? (
        <Chip {...(resolutions[resolution.event] ?? resolutions.reject!)} />
      ) : (
        <Chip tone="quiet" icon="gate" word={over ? 'Not reached' : 'Approval, later'} />
      )}
      <span>
        <strong>{gateId}</strong>
        {resolution ? (
          <span className="faint">
            {' '}
            by <Who row={resolution} />, <Ago at={resolution.createdAt} />
            {resolution.reason && <>: <bdi>{resolution.reason}</bdi></>}
          </span>
        ) : (
          reason && <span className="faint">: <bdi>{reason}</bdi></span>
        )}
        {open && (
          <span className="faint">
            {' · '}
            requested <Ago at={open.requestedAt} />, {open.requirements.map((r) => `${r.given} of ${r.quorum}${r.group && open.requirements.length > 1 ? ` by ${r.group}` : ''}`).join(', ')} approved
          </span>
        )}
      </span>
    </li>
  )
}

/** Who did it; a name may be written in the other direction than what is around it. */
export function Who({ row }: { row: { principalType: string; principalId: number | null; principal?: { name: string } | null } }) {
  if (row.principal) return <bdi>{row.principal.name}</bdi>
  return <>{row.principalId ? `${row.principalType} ${row.principalId}` : `the ${row.principalType}`}</>
}
