// Parts of forms: a labelled field, and what is wrong with it.
import type { ReactNode } from 'react'
import { Refused } from '../api/client'
import type { Finding } from '../form/schema'
import { Icon } from './icon'

export function Problem({ message }: { message?: string | undefined }) {
  if (!message) return null
  return (
    <p className="problem">
      <Icon name="failed" /> {message}
    </p>
  )
}

interface FieldProps {
  id: string
  label: string
  help?: string | undefined
  problem?: string | undefined
  optional?: boolean
  inline?: boolean
  children: ReactNode
}

/** The control in children has this id, and `aria-describedby={id + '-notes'}`. */
export function Field({ id, label, help, problem, optional, inline, children }: FieldProps) {
  return (
    <div className={inline ? 'field inline' : 'field'}>
      <label htmlFor={id}>
        {label} {optional && <span className="faint">(optional)</span>}
      </label>
      {children}
      <div id={`${id}-notes`} className="notes">
        <Problem message={problem} />
        {help && <p className="help">{help}</p>}
      </div>
    </div>
  )
}

/** The findings of an answer that are about something below `under`, with paths from there. */
export function findingsUnder(error: unknown, ...under: string[]): Finding[] {
  if (!(error instanceof Refused)) return []
  return error.problems
    .filter((p) => under.every((u, i) => p.field[i] === u))
    .map((p) => ({ path: p.field.slice(under.length), message: sentence(p.message) }))
}

/** What the server says of a value that is missing. */
const missing = /^(found (nothing|"")|missing)(;|$)/i

export const isMissing = (finding: Finding): boolean => missing.test(finding.message)

export function sentence(message: string): string {
  if (missing.test(message)) return 'Required.'
  // A path, a file or an identifier at the beginning stays as it is spelt.
  const text = /^[a-z]+([\s,:;]|$)/.test(message) ? message.charAt(0).toUpperCase() + message.slice(1) : message
  return /[.!?]$/.test(text) ? text : `${text}.`
}

/** What no control of the form shows: problems of fields that are not in `shown`, and everything that is no answer. */
export function FormError({ error, shown }: { error: unknown; shown: (path: string[]) => boolean }) {
  if (!error) return null
  const lines =
    error instanceof Refused
      ? error.problems.filter((p) => !shown(p.field)).map((p) => (p.field.length > 0 ? `${p.field.join(' › ')}: ${p.message}` : sentence(p.message)))
      : [error instanceof Error ? sentence(error.message) : 'Something went wrong.']
  const some = error instanceof Refused && lines.length < error.problems.length
  return (
    <div role="alert" className="banner bad">
      <Icon name="failed" />
      <div>
        {some && <p>Some fields need another look.</p>}
        {lines.map((l) => (
          <p key={l}>{l}</p>
        ))}
      </div>
    </div>
  )
}
