// An environment of a rollout as a lane: services down, gates across, all moving together. It is a table, because it is one.
import { Link } from 'react-router'
import type { Deployment, Lane, Mark, Stop } from '../logic/gates'
import { shortDigest } from '../logic/difference'
import { span } from '../logic/time'
import { Icon } from './icon'
import { Chip, State } from './state'
import { Ago } from './time'

const marks: Record<Mark, { icon: string; word: string }> = {
  passed: { icon: 'completed', word: 'Passed' },
  here: { icon: 'here', word: 'Stands here' },
  next: { icon: 'moving', word: 'On its way' },
  ahead: { icon: 'pending', word: 'Not yet' },
  skipped: { icon: 'skipped', word: 'Not needed' },
  stopped: { icon: 'failed', word: 'Stopped' },
}

function MarkCell({ mark, last }: { mark: Mark; last?: Deployment }) {
  if (last && mark !== 'ahead') {
    return (
      <td className={`mark ${mark}`}>
        <State state={last.state} />
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

/** The tier, where the name does not say it already. */
export function Tier({ environment }: { environment: { name: string; tier: string } }) {
  const tier = environment.tier.toLowerCase()
  return tier === environment.name.toLowerCase() ? null : <span className="faint tier">{tier}</span>
}

export function LaneView({ lane, target }: { lane: Lane; target: string }) {
  const { place, plan, rows, arrived } = lane
  const from = place.previousVersionSet
  return (
    <li className={`card lane ${place.state.toLowerCase()}`}>
      <header>
        <h2>
          <Link to={`/environments/${place.environment.name}`}>{place.environment.name}</Link> <Tier environment={place.environment} />
        </h2>
        <State state={place.state} />
        <p className="faint">
          {from ? (from.name === target ? `${target}, as before` : `${from.name} → ${target}`) : `first: ${target}`}
          {place.startedAt && (
            <>
              {' · '}
              {place.finishedAt ? `took ${span(Date.parse(place.finishedAt) - Date.parse(place.startedAt))}` : <>began <Ago at={place.startedAt} /></>}
            </>
          )}
        </p>
      </header>
      <div className="scroll" tabIndex={0} role="region" aria-label={`Services and gates in ${place.environment.name}`}>
        <table className="gates">
          <thead>
            <tr>
              <th scope="col">Service</th>
              {plan.map((g, i) => (
                <th scope="col" key={g.weight}>
                  {g.weight} %
                  <div className="faint">
                    {arrived[i]} of {rows.length} came
                    {g.soak > 0 && `, soak ${span(g.soak * 1000)}`}
                    {g.approval && ', approval'}
                  </div>
                </th>
              ))}
              <th scope="col">
                Live<div className="faint">full traffic</div>
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((r) => (
              <tr key={r.deployment.id}>
                <th scope="row">
                  {r.deployment.service.name}
                  <div className="faint">
                    {r.deployment.versions.map((v) => (
                      <span key={v.id} title={v.digest}>
                        {v.name}{' '}
                      </span>
                    ))}
                  </div>
                  {r.deployment.snapshot && (
                    <code className="faint" title={`${r.deployment.snapshot.commitSha}, manifest ${shortDigest(r.deployment.snapshot.manifestDigest)}`}>
                      {r.deployment.snapshot.commitSha.slice(0, 8)}
                    </code>
                  )}
                </th>
                {r.marks.map((m, i) => (
                  <MarkCell key={plan[i]?.weight ?? i} mark={m} />
                ))}
                <MarkCell mark={r.end} last={r.deployment} />
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </li>
  )
}

export function StopView({ stop, over }: { stop: Stop; over: boolean }) {
  if (stop.kind === 'pause') {
    return (
      <li className="stop">
        <Icon name="paused" /> Pause of {span(stop.seconds * 1000)} {stop.name}
      </li>
    )
  }
  if (stop.kind === 'other') {
    return (
      <li className="stop">
        <Icon name="pending" /> {stop.type} {stop.name}
      </li>
    )
  }
  const { gateId, reason, open, resolution } = stop
  return (
    <li className={open ? 'stop open' : 'stop'}>
      {open ? (
        <Chip tone="wait" icon="gate" word="Waits for approval" />
      ) : resolution ? (
        <Chip tone={resolution.event === 'approve' ? 'good' : 'bad'} icon={resolution.event === 'approve' ? 'completed' : 'failed'} word={resolution.event === 'approve' ? 'Approved' : 'Rejected'} />
      ) : (
        <Chip tone="quiet" icon="gate" word={over ? 'Never asked for' : 'Approval, later'} />
      )}
      <span>
        <strong>{gateId}</strong>
        {resolution ? (
          <span className="faint">
            {' '}
            by {who(resolution)}, <Ago at={resolution.createdAt} />
            {resolution.reason && `: ${resolution.reason}`}
          </span>
        ) : (
          reason && <span className="faint"> {reason}</span>
        )}
        {open && (
          <span className="faint">
            {' '}
            asked <Ago at={open.requestedAt} />, {open.approvals.length} of {open.quorum} approved
          </span>
        )}
      </span>
    </li>
  )
}

export function who(row: { principalType: string; principalId: number | null; principal?: { name: string } | null }): string {
  if (row.principal) return row.principal.name
  return row.principalId ? `${row.principalType} ${row.principalId}` : `the ${row.principalType}`
}
