// The browser's own modal dialog: it keeps the focus inside, closes on Escape, and gives the focus back.
import { useEffect, useId, useRef, type FormEvent, type ReactNode } from 'react'

interface DialogProps {
  title: string
  submit: string
  tone?: 'primary' | 'danger'
  busy: boolean
  onSubmit: () => void
  onClose: () => void
  wide?: boolean
  disabled?: boolean
  children: ReactNode
}

export function Dialog({ title, submit, tone = 'primary', busy, onSubmit, onClose, wide, disabled, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const dialog = ref.current
    const before = document.activeElement
    if (dialog && !dialog.open) dialog.showModal()
    return () => {
      dialog?.close()
      if (before instanceof HTMLElement && before.isConnected) before.focus()
    }
  }, [])
  const send = (e: FormEvent) => {
    e.preventDefault()
    if (!busy) onSubmit()
  }
  return (
    <dialog
      ref={ref}
      className={wide ? 'wide' : undefined}
      aria-labelledby={id}
      onCancel={(e) => {
        e.preventDefault()
        onClose()
      }}
    >
      <form onSubmit={send}>
        <h2 id={id}>{title}</h2>
        {children}
        <div className="actions">
          <button type="button" onClick={onClose}>
            Close
          </button>
          <button type="submit" className={tone} disabled={busy || disabled}>
            {busy ? 'Sending…' : submit}
          </button>
        </div>
      </form>
    </dialog>
  )
}
