// Every open gate, across applications: approve or reject where you look.
import { Link } from 'react-router'
import { Rollouts } from '../api/generated'
import { useAsk } from '../api/hooks'
import { GateButtons } from '../parts/decide'
import { Empty, Page, Waiting } from '../parts/page'
import { Chip } from '../parts/state'
import { Ago } from '../parts/time'

export function WaitingForMe() {
  const query = useAsk(Rollouts, { first: 100, states: ['PENDING', 'IN_PROGRESS', 'PAUSED'] }, { live: () => true })
  if (!query.data) {
    return (
      <Page title="Waiting for me">
        <Waiting query={query} what="open gates" />
      </Page>
    )
  }
  const open = query.data.rollouts.nodes
    .flatMap((rollout) => rollout.openGates.map((gate) => ({ rollout, gate })))
    .sort((a, b) => Date.parse(a.gate.requestedAt) - Date.parse(b.gate.requestedAt))
  return (
    <Page title="Waiting for me" lead={<p>Rollouts that stand at a gate until somebody decides. The oldest first.</p>}>
      {open.length === 0 ? (
        <Empty icon="inbox" title="Nothing waits for you">
          <p>A gate that asks for approval appears here by itself.</p>
          <p>
            <Link to="/rollouts?state=active">What is under way</Link>
          </p>
        </Empty>
      ) : (
        <ul className="inbox">
          {open.map(({ rollout, gate }) => {
            const what = `${rollout.versionSet.name} of ${rollout.application.name}`
            return (
              <li className="card" key={`${rollout.id} ${gate.gateId}`}>
                <div>
                  <h2>
                    <Link to={`/rollouts/${rollout.id}`}>
                      {rollout.application.name}: {rollout.versionSet.name}
                    </Link>
                  </h2>
                  <p className="line">
                    <Chip tone="wait" icon="gate" word={gate.gateId} />
                    {rollout.isRollback && <Chip tone="quiet" icon="back" word="Rollback" />}
                    <span className="faint">
                      asked <Ago at={gate.requestedAt} />
                    </span>
                  </p>
                  {gate.reason && <p>{gate.reason}</p>}
                </div>
                <GateButtons rolloutId={rollout.id} gateId={gate.gateId} what={what} />
              </li>
            )
          })}
        </ul>
      )}
    </Page>
  )
}
