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
  const { allowed, reason } = ability
  // The same elements either way, so that the focus stays when what is allowed changes.
  return (
    <span className="act">
      <button
        type="button"
        className={allowed ? className : undefined}
        aria-disabled={allowed ? undefined : true}
        aria-label={label}
        aria-describedby={allowed ? undefined : id}
        onClick={() => allowed && onClick()}
      >
        {children}
      </button>
      {!allowed && (
        <span role="tooltip" id={id} className="why-not">
          {sentence(reason ?? 'Not now')}
        </span>
      )}
    </span>
  )
}
