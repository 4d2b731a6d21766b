// Calls of Functions by the run of a rollout that policies did not permit at once: those that wait for an approval, and what became of others.
import { useState } from 'react'
import { accepted, ask } from '../api/client'
import { AnswerCall, type RolloutPageData } from '../api/generated'
import { ability } from '../logic/ability'
import { ActButton } from './act'
import { Confirm } from './confirm'
import { useFirst } from './fold'
import { sentence } from './form'
import { Due } from './time'

type Call = NonNullable<RolloutPageData['rollout']>['callRequests'][number]

/** So many are drawn until the others are requested. */
const most = 10

export function Calls({ calls }: { calls: Call[] }) {
  const [shown, more] = useFirst(calls, most, 'calls')
  if (calls.length === 0) return null
  return (
    <section className="card" aria-labelledby="calls">
      <h2 id="calls">Calls that policies stopped</h2>
      <ul className="plain">
        {shown.map((c) => (
          <li key={c.id} data-call={c.id}>
            <strong>{c.function}</strong>: {c.state.toLowerCase()}
            {c.state === 'PERMITTED' && c.wouldBe && c.wouldBe !== 'ALLOW' && <span className="faint"> (policies that are tried out would not have)</span>}
            <div dir="auto">{sentence(c.reason)}</div>
            {c.answers.map((a) => (
              <div className="faint" dir="auto" key={a.author}>
                {a.approves ? 'Approved' : 'Refused'} by {a.author}: {a.reason}
              </div>
            ))}
            {c.state === 'PENDING' && <CallButtons call={c} />}
          </li>
        ))}
      </ul>
      {more}
    </section>
  )
}

/** Approve and Refuse, for one call that waits. */
function CallButtons({ call }: { call: Call }) {
  const [open, setOpen] = useState<boolean | null>(null)
  const given = call.answers.filter((a) => a.approves).length
  const who = call.group ? `the group ${call.group}` : 'those who may approve'
  return (
    <>
      <p className="faint">
        {given} of {call.quorum} approvals, by {who}
        {call.expiresAt && (
          <>
            . Without an answer it is refused <Due at={call.expiresAt} />
          </>
        )}
        .
      </p>
      <span className="buttons">
        <ActButton ability={ability(call.viewerCan, 'answerCall')} className="primary" onClick={() => setOpen(true)} label={`Approve the call of ${call.function}`}>
          Approve
        </ActButton>
        <button type="button" onClick={() => setOpen(false)} aria-label={`Refuse the call of ${call.function}`}>
          Refuse
        </button>
        {open !== null && (
          <Confirm
            title={open ? `Approve the call of “${call.function}”` : `Refuse the call of “${call.function}”`}
            submit={open ? 'Approve' : 'Refuse'}
            tone={open ? 'primary' : 'danger'}
            reasoned="required"
            done={open ? `Approved the call of ${call.function}.` : `Refused the call of ${call.function}.`}
            onClose={() => setOpen(null)}
            send={async (reason) => accepted((await ask(AnswerCall, { input: { callRequestId: call.id, approve: open, reason } })).answerCall)}
          >
            <p>{open ? 'The policies decide again with this approval, and the rollout continues.' : 'The call fails, and the program of the rollout decides what follows.'}</p>
          </Confirm>
        )}
      </span>
    </>
  )
}
