// Changes of controls that take a second person: what each one changes, and its decision.
import { useState } from 'react'
import { Link, useSearchParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { ConfirmChange, ForceChange, ProposedChanges, RejectChange, WithdrawChange, type ProposedChangesData } from '../api/generated'
import { useAsk } from '../api/hooks'
import { ability } from '../logic/ability'
import { actionWords, fieldChanges } from '../logic/activity'
import { ActButton } from '../parts/act'
import { Confirm } from '../parts/confirm'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Chip } from '../parts/state'
import { Ago, Due } from '../parts/time'
import { displayed } from '../logic/names'

type Change = ProposedChangesData['proposedChanges']['nodes'][number]

const states = {
  OPEN: { tone: 'wait', icon: 'gate', word: 'Open' },
  CONFIRMED: { tone: 'good', icon: 'completed', word: 'Confirmed' },
  FORCED: { tone: 'bad', icon: 'degraded', word: 'Forced' },
  REJECTED: { tone: 'quiet', icon: 'cancelled', word: 'Rejected' },
  WITHDRAWN: { tone: 'quiet', icon: 'back', word: 'Withdrawn' },
  EXPIRED: { tone: 'quiet', icon: 'clock', word: 'Expired' },
} as const

export default function Changes() {
  const [search] = useSearchParams()
  const all = search.get('show') === 'all'
  const after = search.get('after')
  const query = useAsk(ProposedChanges, { open: !all, first: 50, after })
  const nodes = query.data?.proposedChanges.nodes
  return (
    <Page title="Proposed changes" lead={<p>Changes of controls of environments under change control. Each one is made when a second person confirms it.</p>}>
      <nav className="tabs" aria-label="What to show">
        <Link to="?" aria-current={all ? undefined : 'page'}>
          Open
        </Link>
        <Link to="?show=all" aria-current={all ? 'page' : undefined}>
          All
        </Link>
      </nav>
      {!nodes ? (
        <Waiting query={query} what="proposed changes" />
      ) : nodes.length === 0 ? (
        <Empty icon="people" title={all ? 'No change was proposed yet' : 'No change waits for a second person'}>
          <p>
            Put an environment under change control on its page: <Link to="/environments">all environments</Link>
          </p>
        </Empty>
      ) : (
        <div className="stack">
          {nodes.map((c) => (
            <One key={c.id} change={c} />
          ))}
        </div>
      )}
      {query.data && <More info={query.data.proposedChanges.pageInfo} after={after} />}
    </Page>
  )
}

const decisions = {
  confirm: { label: 'Confirm', submit: 'Confirm and make it', tone: 'primary', done: 'The change is confirmed and made.', explain: 'It is made now, if the control is still as it was when the change was proposed.' },
  reject: { label: 'Reject', submit: 'Reject', tone: 'danger', done: 'The change is rejected.', explain: 'It is not made.' },
  withdraw: { label: 'Withdraw', submit: 'Withdraw', tone: 'danger', done: 'The change is withdrawn.', explain: 'It is not made.' },
  force: { label: 'Force…', submit: 'Make it without a second person', tone: 'danger', done: 'The change is forced: it is made and marked.', explain: 'It is made by break-glass, without a second person, and marked as such in the record.' },
} as const
type Decision = keyof typeof decisions

async function decide(kind: Decision, changeId: string, reason: string): Promise<unknown> {
  const input = { changeId, reason }
  switch (kind) {
    case 'confirm':
      return accepted((await ask(ConfirmChange, { input })).confirmChange)
    case 'reject':
      return accepted((await ask(RejectChange, { input })).rejectChange)
    case 'withdraw':
      return accepted((await ask(WithdrawChange, { input })).withdrawChange)
    case 'force':
      return accepted((await ask(ForceChange, { input })).forceChange)
  }
}

/** One change, with what it changes; decided in place. */
export function One({ change }: { change: Change }) {
  const [open, setOpen] = useState<Decision | null>(null)
  const title = `${actionWords(change.action)} ${change.subjectName || change.subject}`
  return (
    <section className="card" aria-label={title} data-change={change.id}>
      <header className="line">
        <h2>
          {actionWords(change.action)} <bdi className="wrap">{change.subjectName || change.subject}</bdi>
        </h2>
        <Chip {...states[change.state]} />
      </header>
      <p className="faint">
        Proposed by <bdi>{change.proposerName}</bdi>, <Ago at={change.createdAt} />
        {change.state === 'OPEN' && (
          <>
            ; expires <Due at={change.expiresAt} />
          </>
        )}
        {change.decidedAt && (
          <>
            ; decided {change.decider && <>by <bdi>{change.decider.name}</bdi>, </>}
            <Ago at={change.decidedAt} />
          </>
        )}
        {change.environments.length > 0 && <>. Concerns {change.environments.map(displayed).join(', ')}</>}
      </p>
      {change.reason && <p dir="auto">{change.reason}</p>}
      {change.decision && (
        <p dir="auto">
          <span className="faint">Decision:</span> {change.decision}
        </p>
      )}
      <Difference change={change} />
      {change.state === 'OPEN' && (
        <p className="buttons">
          {(Object.keys(decisions) as Decision[]).map((kind) => {
            const can = ability(change.viewerCan, `${kind}Change`)
            // Withdrawing is for the proposer, and forcing for emergencies: where they are not possible, they are no choice.
            if (!can.allowed && (kind === 'withdraw' || kind === 'force')) return null
            return (
              <ActButton key={kind} ability={can} className={kind === 'confirm' ? 'primary' : undefined} label={`${decisions[kind].label} ${title}`} onClick={() => setOpen(kind)}>
                {decisions[kind].label}
              </ActButton>
            )
          })}
        </p>
      )}
      {open && (
        <Confirm
          title={`${decisions[open].label.replace('…', '')}: ${title}`}
          submit={decisions[open].submit}
          tone={decisions[open].tone}
          reasoned={open === 'force' ? 'required' : true}
          done={decisions[open].done}
          onClose={() => setOpen(null)}
          send={(reason) => decide(open, change.id, reason)}
        >
          <p>{decisions[open].explain}</p>
        </Confirm>
      )}
    </section>
  )
}

function Difference({ change }: { change: Change }) {
  const fields = fieldChanges(change.before, change.after)
  if (fields.length === 0) return change.detail ? <p className="wrap">{change.detail}</p> : null
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="What it changes">
      <table className="list">
        <thead>
          <tr>
            <th scope="col">Field</th>
            <th scope="col">Before</th>
            <th scope="col">After</th>
          </tr>
        </thead>
        <tbody>
          {fields.map((f) => (
            <tr key={f.path}>
              <th scope="row" className="mono">
                {f.path}
              </th>
              <td>{f.before === null ? <span className="faint">none</span> : <bdi className="wrap">{f.before}</bdi>}</td>
              <td>{f.after === null ? <span className="faint">none</span> : <bdi className="wrap">{f.after}</bdi>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
