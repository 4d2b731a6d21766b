// Why somebody does something, for the journal.
import { useId } from 'react'
import { Field } from './form'

export function Reason({ value, onChange, label = 'Reason' }: { value: string; onChange: (v: string) => void; label?: string }) {
  const id = useId()
  return (
    <Field id={id} label={label} optional help="It is kept in the journal.">
      <input id={id} aria-describedby={`${id}-notes`} type="text" maxLength={900} autoFocus value={value} onChange={(e) => onChange(e.target.value)} />
    </Field>
  )
}
