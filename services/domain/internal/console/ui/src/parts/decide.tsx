// What people do to a rollout: resolve a gate, cancel. Each asks for a reason, because the journal keeps it, and shows the
// server's own when it is not allowed.
import { useId, useState, type ReactNode } from 'react'
import { accepted, ask } from '../api/client'
import { ApproveGate, CancelRollout, RejectGate } from '../api/generated'
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

export function CancelButton({ rolloutId, what }: { rolloutId: string; what: string }) {
  const [open, setOpen] = useState(false)
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        Cancel rollout
      </button>
      {open && (
        <Confirm
          title={`Cancel ${what}`}
          submit="Cancel rollout"
          tone="danger"
          explain={<p>It ends where it stands. What is deployed stays as it is: to bring an earlier version set back, roll back afterwards.</p>}
          done={`Cancelled ${what}.`}
          onClose={() => setOpen(false)}
          send={async (reason) => accepted((await ask(CancelRollout, { input: { rolloutId, reason } })).cancelRollout)}
        />
      )}
    </>
  )
}
