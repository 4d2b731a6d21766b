import { Link, useSearchParams } from 'react-router'
import { Environments as Operation } from '../api/generated'
import { useAsk } from '../api/hooks'
import { byTier } from '../logic/where'
import { ControlChips } from '../parts/control'
import { FreezeButton } from '../parts/freeze'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Chip, State } from '../parts/state'
import { Ago } from '../parts/time'
import { EnvironmentLink } from '../parts/named'

export function Environments() {
  const [search] = useSearchParams()
  const after = search.get('after')
  const query = useAsk(Operation, { first: 100, after }, { live: (d) => d.environments.nodes.some((e) => e.readiness === 'PENDING') })
  const nodes = query.data && [...query.data.environments.nodes].sort(byTier)
  return (
    <Page title="Environments" beside={
        <>
          <FreezeButton scope={{}} name="all environments" /> <Link className="button primary" to="/environments/new">New environment</Link>
        </>
      }>
      {!nodes ? (
        <Waiting query={query} what="environments" />
      ) : nodes.length === 0 ? (
        <Empty icon="environment" title="No environments yet">
          <p>An environment is a place to deploy to, and the driver that does it.</p>
          <p>
            <Link to="/environments/new">Create the first</Link>
          </p>
        </Empty>
      ) : (
        <div className="scroll card" tabIndex={0} role="region" aria-label="Environments">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Environment</th>
                <th scope="col">Readiness</th>
                <th scope="col">Agent</th>
                <th scope="col">Driver</th>
                <th scope="col">Created</th>
              </tr>
            </thead>
            <tbody>
              {nodes.map((e) => (
                <tr key={e.id}>
                  <th scope="row">
                    <EnvironmentLink of={e} />
                    <div className="faint">{e.tier.toLowerCase()}</div>
                    <ControlChips environment={e} />
                  </th>
                  <td>
                    <State state={e.readiness} />
                    {e.readinessReason && <div className="reason">{e.readinessReason}</div>}
                  </td>
                  <td>
                    {e.contact ? (
                      <>
                        {e.contact.reachable ? <Chip tone="good" icon="completed" word="Can be reached" /> : <Chip tone="bad" icon="offline" word="Cannot be reached" />}
                        <div className="faint">
                          since <Ago at={e.contact.since} />
                        </div>
                      </>
                    ) : (
                      <span className="faint">no agent has reported yet</span>
                    )}
                  </td>
                  <td>
                    <span className="mono">{e.driverBindings[0]?.driverRef}</span>
                  </td>
                  <td>
                    <Ago at={e.createdAt} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {query.data && <More info={query.data.environments.pageInfo} after={after} />}
    </Page>
  )
}
