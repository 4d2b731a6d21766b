// A version set that a person puts together of recorded versions.
import { useId, useState } from 'react'
import { accepted, ask } from '../api/client'
import { CreateVersionSet, VersionsOfServices, type SetFields } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { announce } from './announce'
import { Dialog } from './dialog'
import { Field, FormError } from './form'
import { Waiting } from './page'
import { Reason } from './reason'
import { displayed } from '../logic/names'

interface CurateProps {
  application: string
  /** The set that it begins with. */
  from: SetFields
  onClose: () => void
}

export function Curate({ application, from, onClose }: CurateProps) {
  const query = useAsk(VersionsOfServices, { name: application }, { once: true })
  const [chosen, setChosen] = useState<Record<string, { service: string; version: string }>>({})
  const [name, setName] = useState('')
  const [reason, setReason] = useState('')
  const nameId = useId()
  const save = useChange(
    async () => accepted((await ask(CreateVersionSet, { input: { application, fromVersionSetId: from.id, versions: Object.values(chosen), name, reason } })).createVersionSet),
    () => {
      announce('The version set is made')
      onClose()
    },
  )
  const sources = query.data?.application?.services.flatMap((s) => (s.retiredAt ? [] : s.artifactSources.map((source) => ({ service: s.name, label: displayed(s), source })))) ?? []
  return (
    <Dialog title={`Put a set together from ${from.name}`} submit="Create" busy={save.isPending} onSubmit={() => save.mutate(undefined)} onClose={onClose} wide>
      <p>It is not the newest set, and begins no rollout by itself.</p>
      <Field id={nameId} label="Name" optional help="Such as 2.0; unique within the application.">
        <input id={nameId} aria-describedby={`${nameId}-notes`} type="text" maxLength={63} value={name} onChange={(e) => setName(e.target.value)} />
      </Field>
      {!query.data && <Waiting query={query} what="versions" />}
      {sources.map(({ service, label, source }) => (
        <Choice
          key={source.id}
          label={label}
          present={from.entries.find((e) => e.artifactSource.id === source.id)?.version}
          versions={source.versions.nodes}
          onChange={(version) => setChosen(({ [source.id]: _, ...others }) => (version === '' ? others : { ...others, [source.id]: { service, version } }))}
        />
      ))}
      <Reason value={reason} onChange={setReason} />
      <FormError error={save.error} shown={() => false} />
    </Dialog>
  )
}

interface ChoiceProps {
  label: string
  present: { id: string; name: string } | undefined
  versions: Array<{ id: string; name: string; digest: string }>
  onChange: (version: string) => void
}

function Choice({ label, present, versions, onChange }: ChoiceProps) {
  const id = useId()
  return (
    <Field id={id} label={`Version of ${label}`}>
      <select id={id} aria-describedby={`${id}-notes`} defaultValue="" onChange={(e) => onChange(e.target.value)}>
        <option value="">{present ? `${present.name}, as in the set` : 'none'}</option>
        {versions
          .filter((v) => v.id !== present?.id)
          .map((v) => (
            <option key={v.id} value={v.id}>
              {v.name}
            </option>
          ))}
      </select>
    </Field>
  )
}
