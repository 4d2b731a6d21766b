// Every open gate that the viewer may answer, across applications: approve or reject where you look.
import { Link, useSearchParams } from 'react-router'
import { Inbox } from '../api/generated'
import { always, useAsk } from '../api/hooks'
import { Calls } from '../parts/calls'
import { GateButtons, GateRule } from '../parts/decide'
import { sentence } from '../parts/form'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Chip, RolloutChip } from '../parts/state'
import { Ago } from '../parts/time'
import { displayed } from '../logic/names'

export const inboxPage = 50

export function WaitingForMe() {
  const [search] = useSearchParams()
  const after = search.get('after')
  const query = useAsk(Inbox, { first: inboxPage, after }, { follows: always })
  if (!query.data) {
    return (
      <Page title="Waiting for me">
        <Waiting query={query} what="open gates" />
      </Page>
    )
  }
  const open = query.data.gatesForMe.nodes
  const calls = query.data.callRequests
  return (
    <Page title="Waiting for me" lead={<p>Gates of all applications that you may answer. The oldest rollouts first.</p>}>
      {open.length === 0 && calls.length === 0 ? (
        <Empty icon="inbox" title="Nothing waits for you">
          <p>New gates that you may answer appear here automatically.</p>
          <p>
            <Link to="/rollouts?state=active">What is under way</Link>
          </p>
        </Empty>
      ) : (
        <ul className="inbox">
          {open.map((gate) => {
            const { rollout } = gate
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
                    {(rollout.state === 'PAUSED' || rollout.status === 'ABORTING') && <RolloutChip state={rollout.status} gates={0} />}
                    {rollout.isRollback && <Chip tone="quiet" icon="back" word="Rollback" />}
                    <span className="faint">
                      asked <Ago at={gate.requestedAt} />
                    </span>
                  </p>
                  {gate.reason && <p dir="auto">{sentence(gate.reason)}</p>}
                  <GateRule gate={gate} />
                  <p className="faint">
                    {rollout.environments.map((e, i) => (
                      <span key={e.id}>
                        {i > 0 && ' → '}
                        {displayed(e.environment)} {e.state === 'COMPLETED' ? '(done)' : ''}
                      </span>
                    ))}
                  </p>
                </div>
                <GateButtons rolloutId={rollout.id} gate={gate} what={what} />
              </li>
            )
          })}
        </ul>
      )}
      <More info={query.data.gatesForMe.pageInfo} after={after} />
      <Calls calls={calls} />
    </Page>
  )
}
