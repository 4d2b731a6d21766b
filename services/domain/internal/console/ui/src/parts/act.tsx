// A button for something that may not be allowed now. Then it stays where it is, can be reached by keyboard, and says why: the
// server's own reason, as a hint and to screen readers.
import { useId, type ReactNode } from 'react'
import type { Ability } from '../logic/ability'
import { sentence } from './form'

interface ActButtonProps {
  ability: Ability
  onClick: () => void
  className?: string | undefined
  label?: string | undefined
  children: ReactNode
}

export function ActButton({ ability, onClick, className, label, children }: ActButtonProps) {
  const id = useId()
  if (ability.allowed) {
    return (
      <button type="button" className={className} onClick={onClick} aria-label={label}>
        {children}
      </button>
    )
  }
  return (
    <span className="act">
      <button type="button" aria-disabled="true" aria-label={label} aria-describedby={id} onClick={(e) => e.currentTarget.focus()}>
        {children}
      </button>
      <span role="tooltip" id={id} className="why-not">
        {sentence(ability.reason ?? 'Not now')}
      </span>
    </span>
  )
}
