// What policies decided about a passage of a rollout, or about its creation: each policy with its verdict, and the values that they saw.
import { PolicyDecisions, type PolicyDecisionsData, type PolicyVerdict } from '../api/generated'
import { useAsk } from '../api/hooks'
import { latest, values } from '../logic/decision'
import { useFirst } from './fold'
import { sentence } from './form'
import { Waiting } from './page'
import { Chip } from './state'
import { Ago } from './time'

type Decision = NonNullable<PolicyDecisionsData['rollout']>['policyDecisions'][number]

const looks = {
  ALLOW: { tone: 'good', icon: 'completed', word: 'Allowed' },
  NEEDS_APPROVAL: { tone: 'wait', icon: 'gate', word: 'Approval required' },
  DENY: { tone: 'bad', icon: 'failed', word: 'Denied' },
} as const

export function Verdict({ verdict }: { verdict: PolicyVerdict }) {
  return <Chip {...looks[verdict]} />
}

export function Decided({ rolloutId, gateId }: { rolloutId: string; gateId: string | null }) {
  const query = useAsk(PolicyDecisions, { id: rolloutId }, { follows: (touched) => touched.rollouts.has(rolloutId) })
  if (!query.data) return <Waiting query={query} what="decisions" />
  const decision = latest(query.data.rollout?.policyDecisions ?? []).get(gateId)
  return decision ? <Shown decision={decision} /> : <p className="faint">No policy concerned it, or its decision is not among the latest 100 of the rollout.</p>
}

function Shown({ decision }: { decision: Decision }) {
  const [asked, more] = useFirst(values(decision.request), 30, 'values')
  return (
    <div className="stack" data-decision={decision.id}>
      <p className="line">
        <Verdict verdict={decision.verdict} /> <Ago at={decision.createdAt} />
        {decision.wouldBe && decision.wouldBe !== decision.verdict && (
          <span>
            with the policies that are tried out: <Verdict verdict={decision.wouldBe} />
          </span>
        )}
        <code className="faint">{decision.id}</code>
      </p>
      <ul className="plain" aria-label="Policies">
        {decision.rulings.map((r, i) => (
          <li key={i}>
            <Verdict verdict={r.verdict} />{' '}
            <strong>
              {r.set}
              {r.policy && `/${r.policy}`}
            </strong>
            {r.line !== null && <span className="faint"> line {r.line}</span>}
            {r.given && <span className="faint"> (its approval was given)</span>}
            {r.dryRun && <span className="faint"> (tried out: it does not count)</span>}
            <div dir="auto">{sentence(r.sentence)}</div>
          </li>
        ))}
      </ul>
      <details>
        <summary>The values that they saw</summary>
        <dl className="config">
          {asked.map(([path, value]) => (
            <div key={path}>
              <dt className="mono">{path}</dt>
              <dd dir="auto">{value}</dd>
            </div>
          ))}
        </dl>
        {more}
        <p className="faint mono">
          {decision.digest}
          {decision.pinnedDigest && `, and as it was created ${decision.pinnedDigest}`}
        </p>
      </details>
    </div>
  )
}
