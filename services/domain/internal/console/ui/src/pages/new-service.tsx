// Another service of an application that exists, with its first source.
import { useId, useState } from 'react'
import { Link, useNavigate, useParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { AddService, SourceKinds, type SourceKindsData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { useOffers } from '../form/offers'
import { prune, validate, withDefaults, type Json, type Schema } from '../form/schema'
import { SchemaForm } from '../form/SchemaForm'
import { announce } from '../parts/announce'
import { Field, findingsUnder, FormError } from '../parts/form'
import { Page, Waiting } from '../parts/page'
import { Reason } from '../parts/reason'
import { focusFirst } from './new-environment'

export default function NewService() {
  const { name = '' } = useParams()
  const kinds = useAsk(SourceKinds, {}, { once: true })
  return (
    <Page
      title="Add a service"
      above={<Link to={`/applications/${name}`}>{name}</Link>}
      lead={<p>Version sets go without it until its first version. The application is set up again in each of its environments; a rollout under way is not affected.</p>}
    >
      {kinds.data ? <Form application={name} kinds={kinds.data.artifactSourceKinds} /> : <Waiting query={kinds} what="kinds of sources" />}
    </Page>
  )
}

function Form({ application, kinds }: { application: string; kinds: SourceKindsData['artifactSourceKinds'] }) {
  const [name, setName] = useState('')
  const [reason, setReason] = useState('')
  const [ref, setRef] = useState(kinds[0]?.ref ?? '')
  const [config, setConfig] = useState<Json>({} as Json)
  const [tried, setTried] = useState(false)
  const navigate = useNavigate()
  const nameId = useId()
  const kindId = useId()
  const schema = (kinds.find((k) => k.ref === ref)?.schema ?? true) as Schema
  const offers = useOffers(schema)
  const value = prune(schema, schema, withDefaults(schema, schema, config)) as Json
  const local = validate(schema, schema, value)
  const save = useChange(
    async () => accepted((await ask(AddService, { input: { application, name, reason, artifactSources: [{ sourceRef: ref, sourceConfig: value }] } })).addService),
    () => {
      announce(`${name} is added`)
      void navigate(`/applications/${application}`)
    },
  )
  const under = ['artifactSources', '0', 'sourceConfig']
  const findings = [...(tried ? local : []), ...findingsUnder(save.error, ...under)]
  const shown = (path: string[]) => under.every((u, i) => path[i] === u)
  return (
    <form
      className="card form"
      onSubmit={(e) => {
        e.preventDefault()
        setTried(true)
        if (local.length > 0) focusFirst(e.currentTarget, local[0]?.path)
        else save.mutate(undefined)
      }}
    >
      <Field id={nameId} label="Name" help="As its workload is called, such as api.">
        <input id={nameId} aria-describedby={`${nameId}-notes`} type="text" required value={name} onChange={(e) => setName(e.target.value)} />
      </Field>
      <Field id={kindId} label="Kind of its source">
        <select
          id={kindId}
          aria-describedby={`${kindId}-notes`}
          value={ref}
          onChange={(e) => {
            setRef(e.target.value)
            setConfig({} as Json)
            setTried(false)
          }}
        >
          {kinds.map((k) => (
            <option key={k.ref}>{k.ref}</option>
          ))}
        </select>
      </Field>
      <SchemaForm context={{ root: schema, driver: ref, findings, ...offers }} value={value} onChange={setConfig} />
      <Reason value={reason} onChange={setReason} />
      <FormError error={save.error} shown={shown} />
      <div className="actions">
        <button type="submit" className="primary" disabled={save.isPending || name === ''}>
          {save.isPending ? 'Adding…' : 'Add service'}
        </button>
      </div>
    </form>
  )
}
