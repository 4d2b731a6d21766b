// What people do to a rollout: resolve a gate, cancel. Each asks for a reason, because the journal keeps it, and shows the
// server's own when it is not allowed.
import { useId, useState, type ReactNode } from 'react'
import { useNavigate } from 'react-router'
import { accepted, ask } from '../api/client'
import { ApproveGate, CancelRollout, PauseRollout, RejectGate, ResumeRollout, RollbackRollout } from '../api/generated'
import { useChange } from '../api/hooks'
import { announce } from './announce'
import { Dialog } from './dialog'
import { Field, FormError } from './form'

export function Reason({ value, onChange, label = 'Reason' }: { value: string; onChange: (v: string) => void; label?: string }) {
  const id = useId()
  return (
    <Field id={id} label={label} optional help="It is kept in the journal.">
      <input id={id} aria-describedby={`${id}-notes`} type="text" maxLength={900} autoFocus value={value} onChange={(e) => onChange(e.target.value)} />
    </Field>
  )
}

interface Act {
  title: string
  submit: string
  tone: 'primary' | 'danger'
  explain: ReactNode
  done: string
  send: (reason: string) => Promise<unknown>
  onClose: () => void
}

function Confirm({ title, submit, tone, explain, done, send, onClose }: Act) {
  const [reason, setReason] = useState('')
  const change = useChange(send, () => {
    announce(done)
    onClose()
  })
  return (
    <Dialog title={title} submit={submit} tone={tone} busy={change.isPending} onSubmit={() => change.mutate(reason)} onClose={onClose}>
      {explain}
      <Reason value={reason} onChange={setReason} />
      <FormError error={change.error} shown={() => false} />
    </Dialog>
  )
}

/** Approve and Reject, for one open gate. */
export function GateButtons({ rolloutId, gateId, what }: { rolloutId: string; gateId: string; what: string }) {
  const [open, setOpen] = useState<'approve' | 'reject' | null>(null)
  const close = () => setOpen(null)
  return (
    <span className="buttons">
      <button type="button" className="primary" onClick={() => setOpen('approve')} aria-label={`Approve ${gateId} of ${what}`}>
        Approve
      </button>
      <button type="button" onClick={() => setOpen('reject')} aria-label={`Reject ${gateId} of ${what}`}>
        Reject
      </button>
      {open === 'approve' && (
        <Confirm
          title={`Approve “${gateId}”`}
          submit="Approve"
          tone="primary"
          explain={<p>{what} goes on.</p>}
          done={`Approved “${gateId}” of ${what}.`}
          onClose={close}
          send={async (reason) => accepted((await ask(ApproveGate, { input: { rolloutId, gateId, reason } })).approveGate)}
        />
      )}
      {open === 'reject' && (
        <Confirm
          title={`Reject “${gateId}”`}
          submit="Reject and cancel"
          tone="danger"
          explain={<p>{what} is cancelled where it stands. What is deployed stays as it is.</p>}
          done={`Rejected “${gateId}” of ${what}.`}
          onClose={close}
          send={async (reason) => accepted((await ask(RejectGate, { input: { rolloutId, gateId, reason } })).rejectGate)}
        />
      )}
    </span>
  )
}

interface RolloutActProps {
  label: string
  tone?: 'primary' | 'danger'
  title: string
  explain: string
  done: string
  send: (reason: string) => Promise<unknown>
}

function RolloutAct({ label, tone = 'primary', title, explain, done, send }: RolloutActProps) {
  const [open, setOpen] = useState(false)
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        {label}
      </button>
      {open && <Confirm title={title} submit={label} tone={tone} explain={<p>{explain}</p>} done={done} onClose={() => setOpen(false)} send={send} />}
    </>
  )
}

/** What can be done to a rollout that is not over. */
export function RolloutActs({ rolloutId, what, held }: { rolloutId: string; what: string; held: boolean }) {
  const navigate = useNavigate()
  const input = (reason: string) => ({ input: { rolloutId, reason } })
  return (
    <>
      {held ? (
        <RolloutAct
          label="Resume"
          title={`Resume ${what}`}
          explain="It goes on from where it stands."
          done={`${what} goes on.`}
          send={async (reason) => accepted((await ask(ResumeRollout, input(reason))).resumeRollout)}
        />
      ) : (
        <RolloutAct
          label="Pause"
          title={`Pause ${what}`}
          explain="It is held at the gate where it stands, or at the next one that it comes to."
          done={`${what} pauses at its next gate.`}
          send={async (reason) => accepted((await ask(PauseRollout, input(reason))).pauseRollout)}
        />
      )}
      <RolloutAct
        label="Roll back"
        tone="danger"
        title={`Roll back ${what}`}
        explain="It ends where it stands, and a rollout of what was live before begins at once, through the same environments and gates."
        done={`${what} is rolled back.`}
        send={async (reason) => {
          const made = accepted((await ask(RollbackRollout, input(reason))).rollbackRollout)
          if (made.rollout) void navigate(`/rollouts/${made.rollout.id}`)
        }}
      />
      <RolloutAct
        label="Cancel rollout"
        tone="danger"
        title={`Cancel ${what}`}
        explain="It ends where it stands. What is deployed stays as it is."
        done={`Cancelled ${what}.`}
        send={async (reason) => accepted((await ask(CancelRollout, input(reason))).cancelRollout)}
      />
    </>
  )
}
