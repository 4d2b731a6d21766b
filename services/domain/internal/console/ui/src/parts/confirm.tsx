// The one dialog that asks before something is done that cannot be taken back by another press: what it means, the reason where the
// server keeps one, what the server said when it refused, and what is announced once it is done.
import { useState, type ReactNode } from 'react'
import { useChange } from '../api/hooks'
import { announce } from './announce'
import { Dialog } from './dialog'
import { FormError } from './form'
import { Reason } from './reason'

interface ConfirmProps {
  title: string
  submit: string
  tone?: 'primary' | 'danger'
  /** What it means. */
  children: ReactNode
  /** What is announced once it is done. */
  done: string
  /** Whether to ask for a reason, which send gets; otherwise it gets an empty one. */
  reasoned?: boolean | 'required'
  send: (reason: string) => Promise<unknown>
  onClose: () => void
}

export function Confirm({ title, submit, tone = 'danger', children, done, reasoned = false, send, onClose }: ConfirmProps) {
  const [reason, setReason] = useState('')
  const change = useChange(send, () => {
    announce(done)
    onClose()
  })
  return (
    <Dialog title={title} submit={submit} tone={tone} busy={change.isPending} disabled={reasoned === 'required' && reason.trim() === ''} onSubmit={() => change.mutate(reason)} onClose={onClose}>
      {children}
      {reasoned && <Reason value={reason} onChange={setReason} required={reasoned === 'required'} />}
      <FormError error={change.error} shown={() => false} />
    </Dialog>
  )
}
