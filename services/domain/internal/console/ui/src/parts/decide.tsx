// What people do to a rollout: resolve a gate, pause, abort, go back. Each asks for a reason, because the journal keeps it, and shows the
// server's own when it is not allowed.
import { useState } from 'react'
import { useNavigate } from 'react-router'
import { accepted, ask } from '../api/client'
import { AbortRollout, ApproveGate, CancelRollout, type CancelThen, PauseRollout, RejectGate, ResumeRollout, RetryRollout, type GateFields, type RolloutPageData } from '../api/generated'
import { ability, type Ability } from '../logic/ability'
import { afterApproval, missingAfter, requirement } from '../logic/gates'
import { isOver } from '../logic/waiting'
import { ActButton } from './act'
import { Confirm } from './confirm'
import { sentence } from './form'
import { GlassDialog } from './glass'
import { Due } from './time'

/** Approve and Reject, for one open gate; and break-glass, for those who may. */
export function GateButtons({ rolloutId, gate, what, glass }: { rolloutId: string; gate: GateFields; what: string; glass?: Ability | undefined }) {
  const [open, setOpen] = useState<'approve' | 'reject' | 'glass' | null>(null)
  const { gateId } = gate
  const close = () => setOpen(null)
  const missing = missingAfter(gate.requirements)
  return (
    <span className="buttons">
      <ActButton ability={ability(gate.viewerCan, 'approveGate')} className="primary" onClick={() => setOpen('approve')} label={`Approve ${gateId} of ${what}`}>
        Approve
      </ActButton>
      <ActButton ability={ability(gate.viewerCan, 'rejectGate')} onClick={() => setOpen('reject')} label={`Reject ${gateId} of ${what}`}>
        Reject
      </ActButton>
      {glass?.allowed && (
        <button type="button" className="danger-quiet" onClick={() => setOpen('glass')}>
          Break glass…
        </button>
      )}
      {open === 'glass' && <GlassDialog rolloutId={rolloutId} what={what} onClose={close} />}
      {open === 'approve' && (
        <Confirm
          title={`Approve “${gateId}”`}
          submit="Approve"
          tone="primary"
          reasoned
          done={`Approved “${gateId}” of ${what}.`}
          onClose={close}
          send={async (reason) => accepted((await ask(ApproveGate, { input: { rolloutId, gateId, reason } })).approveGate)}
        >
          <p>{afterApproval(gate.requirements, what)}</p>
          {missing > 0 && glass?.allowed && (
            <p>
              No one else can approve in time?{' '}
              <button type="button" className="danger-quiet" onClick={() => setOpen('glass')}>
                Break glass instead…
              </button>
            </p>
          )}
        </Confirm>
      )}
      {open === 'reject' && (
        <Confirm
          title={`Reject “${gateId}”`}
          submit="Reject and cancel"
          tone="danger"
          reasoned
          done={`Rejected “${gateId}” of ${what}.`}
          onClose={close}
          send={async (reason) => accepted((await ask(RejectGate, { input: { rolloutId, gateId, reason } })).rejectGate)}
        >
          <p>{what} is cancelled where it is. What is deployed stays as it is.</p>
        </Confirm>
      )}
    </span>
  )
}

/** Who may answer a gate, by when, and who has. */
export function GateRule({ gate }: { gate: GateFields }) {
  const { requirements, expiresAt, onExpiry } = gate
  return (
    <p className="faint">
      {requirements.map(requirement).join('; ')}
      {!gate.requesterMayApprove && ' except the requester'}
      {expiresAt && (
        <>
          . Without an answer it is {onExpiry === 'APPROVE' ? 'approved' : 'rejected'} <Due at={expiresAt} />
        </>
      )}
      .
    </p>
  )
}

interface RolloutActProps {
  action: string
  label: string
  tone?: 'primary' | 'danger'
  title: string
  explain: string
  done: string
  send: (input: { input: { rolloutId: string; reason: string } }) => Promise<unknown>
}

/** What can be done to a rollout, all of it always in the same place; going back has a dialog of its own, which shows what changes. */
export function RolloutActs({ rollout, what, rollBack }: { rollout: NonNullable<RolloutPageData['rollout']>; what: string; rollBack: () => void }) {
  const [open, setOpen] = useState<RolloutActProps | null>(null)
  const [cancelling, setCancelling] = useState(false)
  const navigate = useNavigate()
  const goTo = (made: { id: string } | null) => {
    if (made && made.id !== rollout.id) void navigate(`/rollouts/${made.id}`)
  }
  const acts: RolloutActProps[] = [
    held(rollout)
      ? {
          action: 'resumeRollout', label: 'Resume', title: `Resume ${what}`, explain: 'It continues from where it is.', done: `${what} continues.`,
          send: async (input) => accepted((await ask(ResumeRollout, input)).resumeRollout),
        }
      : {
          action: 'pauseRollout', label: 'Pause', title: `Pause ${what}`, explain: 'It is held at its current gate, or at the next one that it reaches.', done: `${what} pauses at its next gate.`,
          send: async (input) => accepted((await ask(PauseRollout, input)).pauseRollout),
        },
    {
      action: 'abortRollout', label: 'Abort', tone: 'danger', title: `Abort ${what}`, done: `${what} is aborted.`,
      explain: 'What is being deployed returns to the previous stable version. The rollout stays aborted until it is retried, rolled back or cancelled.',
      send: async (input) => accepted((await ask(AbortRollout, input)).abortRollout),
    },
    {
      action: 'retryRollout', label: 'Retry', title: `Retry ${what}`, done: `${what} starts again.`,
      explain: isOver(rollout.state) ? 'A new rollout of the same version set starts.' : 'It starts again from its first gate.',
      send: async (input) => goTo(accepted((await ask(RetryRollout, input)).retryRollout).rollout),
    },
  ]
  return (
    <div className="buttons" role="group" aria-label="What can be done">
      {acts.map((act, place) => (
        // Pausing and resuming have one place, and keep the focus there.
        <ActButton key={place} ability={ability(rollout.viewerCan, act.action)} onClick={() => setOpen(act)}>
          {act.label}
        </ActButton>
      ))}
      <ActButton ability={ability(rollout.viewerCan, 'cancelRollout')} onClick={() => setCancelling(true)}>
        Cancel rollout
      </ActButton>
      <ActButton ability={ability(rollout.viewerCan, 'rollbackRollout')} className={rollout.state === 'FAILED' && !rollout.rolledBackBy ? 'primary' : undefined} onClick={rollBack}>
        Roll back
      </ActButton>
      {cancelling && <CancelDialog rollout={rollout} what={what} goTo={goTo} onClose={() => setCancelling(false)} />}
      {open && (
        <Confirm
          title={open.title}
          submit={open.label}
          tone={open.tone ?? 'primary'}
          reasoned
          done={open.done}
          onClose={() => setOpen(null)}
          send={(reason) => open.send({ input: { rolloutId: rollout.id, reason } })}
        >
          <p>{open.explain}</p>
        </Confirm>
      )}
    </div>
  )
}

const choices: { then: CancelThen; action: string; label: string; explain: string }[] = [
  { then: 'LEAVE', action: 'cancelRollout', label: 'Leave everything as it is', explain: 'It ends where it is. What is deployed stays.' },
  { then: 'ABORT', action: 'abortRollout', label: 'Take back what is being deployed', explain: 'It returns to the previous stable version, and then the rollout ends.' },
  { then: 'ROLLBACK', action: 'rollbackRollout', label: 'Roll back', explain: 'A rollout of what was live before starts, through the same gates.' },
]

/** Cancels a rollout, with the choice of what happens to what it has deployed. */
function CancelDialog({ rollout, what, goTo, onClose }: { rollout: NonNullable<RolloutPageData['rollout']>; what: string; goTo: (made: { id: string } | null) => void; onClose: () => void }) {
  const [then, setThen] = useState<CancelThen>('LEAVE')
  return (
    <Confirm
      title={`Cancel ${what}`}
      submit="Cancel rollout"
      tone="danger"
      reasoned
      done={then === 'ABORT' ? `${what} is cancelled when it has been taken back.` : `Cancelled ${what}.`}
      onClose={onClose}
      send={async (reason) => goTo(accepted((await ask(CancelRollout, { input: { rolloutId: rollout.id, then, reason } })).cancelRollout).rollback)}
    >
      <fieldset className="scopes">
        <legend>What happens to what it has deployed</legend>
        {choices.map((c) => {
          const can = c.then === 'LEAVE' ? { allowed: true, reason: null } : ability(rollout.viewerCan, c.action)
          return (
            <label key={c.then}>
              <input type="radio" name="then" value={c.then} checked={then === c.then} disabled={!can.allowed} onChange={() => setThen(c.then)} />
              <span>
                {c.label} <span className="faint">{can.allowed ? c.explain : sentence(can.reason ?? 'Not now')}</span>
              </span>
            </label>
          )
        })}
      </fieldset>
    </Confirm>
  )
}

/** Whether resuming makes more sense than pausing: it is held, or will be at its next gate. */
function held(rollout: { state: string; pauseRequested: boolean }): boolean {
  return rollout.state === 'PAUSED' || rollout.pauseRequested
}
