import { Link, useSearchParams } from 'react-router'
import { Applications as Operation } from '../api/generated'
import { useAsk } from '../api/hooks'
import { Empty, More, Page, Waiting } from '../parts/page'
import { sentence } from '../parts/form'
import { State } from '../parts/state'
import { Ago } from '../parts/time'
import { displayed } from '../logic/names'

export function Applications() {
  const [search] = useSearchParams()
  const after = search.get('after')
  const query = useAsk(Operation, { first: 50, after })
  const nodes = query.data?.applications.nodes
  return (
    <Page title="Applications" beside={<Link className="button primary" to="/applications/new">New application</Link>}>
      {!nodes ? (
        <Waiting query={query} what="applications" />
      ) : nodes.length === 0 ? (
        <Empty icon="app" title="No applications yet">
          <p>An application is the services that ship together.</p>
          <p>
            <Link to="/start">Go through the steps to a first rollout</Link>, or <Link to="/applications/new">create an application</Link>
          </p>
        </Empty>
      ) : (
        <div className="scroll card" tabIndex={0} role="region" aria-label="Applications">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Application</th>
                <th scope="col">Services</th>
                <th scope="col">Pipeline</th>
                <th scope="col">Rollout</th>
                <th scope="col">Created</th>
              </tr>
            </thead>
            <tbody>
              {nodes.map((a) => (
                <tr key={a.id}>
                  <th scope="row">
                    <Link to={`/applications/${a.name}`}>{a.name}</Link>
                    {a.description && <div className="faint" dir="auto">{a.description}</div>}
                  </th>
                  <td>{a.services.map(displayed).join(', ')}</td>
                  <td>
                    {a.flowDefinition ? a.environments.map((e) => displayed(e.environment)).join(' → ') : <Link to={`/applications/${a.name}/pipeline`}>Create one</Link>}
                  </td>
                  <td>{a.activeRollout ? <Link to={`/rollouts/${a.activeRollout.id}`}><State state={a.activeRollout.status} /></Link> : !a.queuedRollout && <span className="faint">none</span>}{a.queuedRollout && <div><State state="PENDING" /> <span className="faint">{sentence(a.queuedRollout.why)}</span></div>}</td>
                  <td>
                    <Ago at={a.createdAt} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {query.data && <More info={query.data.applications.pageInfo} after={after} />}
    </Page>
  )
}
