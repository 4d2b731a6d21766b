// The field for the reason of a change, which the journal records.
import { useId } from 'react'
import { Field } from './form'

interface ReasonProps {
  value: string
  onChange: (v: string) => void
  label?: string
  required?: boolean
}

export function Reason({ value, onChange, label = 'Reason', required = false }: ReasonProps) {
  const id = useId()
  return (
    <Field id={id} label={label} optional={!required} help={required ? 'Required. It is kept in the journal.' : 'It is kept in the journal.'}>
      <input id={id} aria-describedby={`${id}-notes`} type="text" maxLength={900} autoFocus required={required} value={value} onChange={(e) => onChange(e.target.value)} />
    </Field>
  )
}
