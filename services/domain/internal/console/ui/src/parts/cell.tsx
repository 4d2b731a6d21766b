// A cell of the matrix: what is live, for how long and how it does; what is on its way; what differs from what was deployed.
import { Link } from 'react-router'
import type { CellFields } from '../api/generated'
import { attempt } from '../logic/where'
import { Icon } from './icon'
import { Chip, State, stateWord } from './state'
import { Ago } from './time'

export function Cell({ cell, application }: { cell: CellFields; application: string }) {
  const now = attempt(cell)
  const { live, liveSince, health, reconciliation, readiness, readinessReason } = cell
  return (
    <div className="spot">
      <div className="live">
        {live ? <Link className="set" to={`/applications/${application}/sets?from=${live.id}`}>{live.name}</Link> : <span className="faint">nothing live yet</span>}
        {!now && cell.latest?.fleet && (
          <span className={cell.latest.fleet.failed > 0 ? 'notready' : 'faint'} title="healthy targets">
            {cell.latest.fleet.healthy}/{cell.latest.fleet.targets}
          </span>
        )}
        {health !== 'UNKNOWN' && <State state={health} />}
        {live && liveSince && (
          <span className="faint age">
            live <Ago at={liveSince} />
          </span>
        )}
      </div>
      {now && (
        <Link className="attempt" to={`/rollouts/${now.rolloutId}`}>
          {now.gate ? <Chip tone="wait" icon="gate" word={`Waits: ${now.gate}`} /> : <State state={now.state} />}
          <span>
            {now.set}
            {now.isRollback && ' (rollback)'}
            {cell.latest?.fleet && ` ${cell.latest.fleet.healthy}/${cell.latest.fleet.targets}`}
          </span>
        </Link>
      )}
      {reconciliation?.drift && (
        <span className="drift" title={reconciliation.drift}>
          <Icon name="drift" />
          <span>
            Drift since <Ago at={reconciliation.since} />: {reconciliation.drift}
            {reconciliation.staleReason && (
              <>
                {' '}
                (as of <Ago at={reconciliation.observedAt} />: {reconciliation.staleReason})
              </>
            )}
          </span>
        </span>
      )}
      {reconciliation && !reconciliation.drift && reconciliation.staleReason && (
        <span className="notready">
          <Icon name="drift" />
          <span>
            No drift as of <Ago at={reconciliation.observedAt} />: {reconciliation.staleReason}
          </span>
        </span>
      )}
      {readiness !== 'READY' && (
        <span className={readiness === 'PENDING' ? 'faint' : 'notready'}>
          <Icon name={readiness === 'PENDING' ? 'moving' : 'degraded'} /> {stateWord(readiness)}
          {readinessReason && `: ${readinessReason}`}
        </span>
      )}
    </div>
  )
}
