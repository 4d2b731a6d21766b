// The policy sets of the organization: what they concern, and whether they count.
import { Link } from 'react-router'
import { ControlDecisions, InstallationPolicies, PolicySets, type PolicyMode, type PolicySetsData } from '../api/generated'
import { useAsk } from '../api/hooks'
import { changeWords } from '../logic/control'
import { lines, type Values } from '../logic/details'
import { Empty, Page, Waiting } from '../parts/page'
import { Chip } from '../parts/state'
import { Ago } from '../parts/time'
import { displayed } from '../logic/names'

const modes: Record<PolicyMode, { tone: 'good' | 'wait' | 'quiet'; icon: string; word: string }> = {
  ENFORCE: { tone: 'good', icon: 'completed', word: 'Enforced' },
  DRY_RUN: { tone: 'wait', icon: 'pending', word: 'Dry run' },
  OFF: { tone: 'quiet', icon: 'cancelled', word: 'Off' },
}

export const Mode = ({ mode }: { mode: PolicyMode }) => <Chip {...modes[mode]} />

/** What a set is about, in words. */
export function scopeWords({ application, environment, applicationLabels }: Pick<PolicySetsData['policySets'][number], 'application' | 'environment' | 'applicationLabels'>): string {
  if (application) return `application ${application.name}`
  if (environment) return `environment ${displayed(environment)}`
  if (applicationLabels) return `applications with ${lines(applicationLabels as Values).replaceAll('\n', ', ')}`
  return 'the whole organization'
}

export default function Policies() {
  const query = useAsk(PolicySets, {})
  const all = query.data?.policySets
  return (
    <Page
      title="Policies"
      lead={<p>What rollouts and their programs are allowed to do, written in Cedar. Without any policy, everything is allowed that permissions allow.</p>}
      beside={
        <Link className="button primary" to="/new-policy-set">
          New policy set
        </Link>
      }
    >
      {!all ? (
        <Waiting query={query} what="policies" />
      ) : all.length === 0 ? (
        <Empty icon="gate" title="No policies yet">
          <p>A new set is tried out first: it decides nothing, and shows what it would have decided.</p>
        </Empty>
      ) : (
        <div className="scroll card" tabIndex={0} role="region" aria-label="Policy sets">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Policy set</th>
                <th scope="col">Concerns</th>
                <th scope="col">State</th>
                <th scope="col">Version</th>
                <th scope="col">Changed</th>
              </tr>
            </thead>
            <tbody>
              {all.map((s) => (
                <tr key={s.id}>
                  <th scope="row">
                    <Link to={`/policies/${encodeURIComponent(s.name)}`}>{s.name}</Link>
                  </th>
                  <td>{scopeWords(s)}</td>
                  <td>
                    <Mode mode={s.mode} />
                  </td>
                  <td>{s.version}</td>
                  <td className="wrap">
                    <Ago at={s.createdAt} /> by <bdi>{s.author}</bdi>
                    <div className="faint">{s.reason}</div>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <Installation />
      {all && all.length > 0 && <Controls />}
    </Page>
  )
}

/** The sets of the operator, which concern every organization; nothing where there are none. */
function Installation() {
  const query = useAsk(InstallationPolicies, {}, { once: true })
  const all = query.data?.installationPolicies ?? []
  if (all.length === 0) return null
  return (
    <section aria-labelledby="installation-policies">
      <h2 id="installation-policies">Policies of the installation</h2>
      <p className="faint">The operator of the installation has given them. They concern every organization, and nothing here makes them weaker.</p>
      {all.map((s) => (
        <details key={s.name} className="card">
          <summary>
            {s.name} <Mode mode={s.mode} /> <span className="faint">{s.timeZone}</span>
          </summary>
          <pre tabIndex={0}>{s.text}</pre>
        </details>
      ))}
    </section>
  )
}

const verdicts = {
  ALLOW: { tone: 'good', icon: 'completed', word: 'Allowed' },
  NEEDS_APPROVAL: { tone: 'wait', icon: 'pending', word: 'Approval required' },
  DENY: { tone: 'bad', icon: 'failed', word: 'Denied' },
} as const

/** What policies decided about changes of controls; nothing where none is about them. */
function Controls() {
  const query = useAsk(ControlDecisions, {})
  const all = query.data?.controlDecisions ?? []
  if (all.length === 0) return null
  return (
    <section aria-labelledby="control-decisions">
      <h2 id="control-decisions">Decisions about changes of controls</h2>
      <div className="scroll card" tabIndex={0} role="region" aria-label="Decisions about changes of controls">
        <table className="list">
          <thead>
            <tr>
              <th scope="col">Decision</th>
              <th scope="col">Change</th>
              <th scope="col">Verdict</th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>
            {all.map((d) => (
              <tr key={d.id}>
                <th scope="row">{d.id}</th>
                <td>
                  <bdi>{changeWords(d.request)}</bdi>
                  <div className="faint">
                    <Ago at={d.createdAt} />
                  </div>
                </td>
                <td>
                  <Chip {...verdicts[d.verdict]} />
                </td>
                <td className="wrap">{d.summary}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  )
}
