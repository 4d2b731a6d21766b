// A new environment with its driver's form. Its onboarding begins at once, and its page shows what comes of it.
import { useId, useState } from 'react'
import { Link, useNavigate } from 'react-router'
import { accepted, ask } from '../api/client'
import { CreateEnvironment, Drivers, type DriversData, type Tier } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { useOffers } from '../form/offers'
import { prune, validate, withDefaults, type Json, type Schema } from '../form/schema'
import { SchemaForm } from '../form/SchemaForm'
import { announce } from '../parts/announce'
import { Field, findingsUnder, FormError } from '../parts/form'
import { Page, Waiting } from '../parts/page'
import { Text } from './new-application'

const tiers: Array<[Tier, string]> = [
  ['DEVELOPMENT', 'Development'],
  ['QA', 'QA'],
  ['STAGING', 'Staging'],
  ['PRODUCTION', 'Production'],
]

export default function NewEnvironment() {
  const navigate = useNavigate()
  return (
    <Page title="New environment" above={<Link to="/environments">environments</Link>} lead={<p>A place to deploy to. The driver checks at once whether it has what it needs there.</p>}>
      <EnvironmentForm done={(name) => void navigate(`/environments/${name}`)} />
    </Page>
  )
}

/** The form alone; done gets the name of what was made. */
export function EnvironmentForm({ done }: { done: (name: string) => void }) {
  const drivers = useAsk(Drivers, {}, { once: true })
  return drivers.data ? <Form drivers={drivers.data.drivers} done={done} /> : <Waiting query={drivers} what="drivers" />
}

function Form({ drivers, done }: { drivers: DriversData['drivers']; done: (name: string) => void }) {
  const [name, setName] = useState('')
  const [description, setDescription] = useState('')
  const [tier, setTier] = useState<Tier>('STAGING')
  const [ref, setRef] = useState(drivers[0]?.ref ?? '')
  const [config, setConfig] = useState<Json>({})
  const [tried, setTried] = useState(false)
  const tierId = useId()
  const driverId = useId()
  const schema = (drivers.find((d) => d.ref === ref)?.environmentSchema ?? true) as Schema
  const offers = useOffers(schema)
  const value = prune(schema, schema, withDefaults(schema, schema, config)) as Json
  const local = validate(schema, schema, value)
  const change = useChange(
    async () => accepted((await ask(CreateEnvironment, { input: { name, description, tier, driverRef: ref, driverConfig: value } })).createEnvironment),
    () => {
      announce(`${name} is created, and is being onboarded.`)
      done(name)
    },
  )
  const findings = [...(tried ? local : []), ...findingsUnder(change.error, 'driverConfig')]
  const problem = (field: string) => findingsUnder(change.error, field)[0]?.message
  return (
    <form
      className="card form"
      onSubmit={(e) => {
        e.preventDefault()
        setTried(true)
        if (local.length === 0) change.mutate(undefined)
        else focusFirst(e.currentTarget, local[0]?.path)
      }}
    >
      <Text label="Name" value={name} onChange={setName} problem={problem('name')} field="name" />
      <Text label="Description" value={description} onChange={setDescription} problem={problem('description')} field="description" optional />
      <Field id={tierId} label="Tier">
        <select id={tierId} aria-describedby={`${tierId}-notes`} value={tier} onChange={(e) => setTier(e.target.value as Tier)}>
          {tiers.map(([t, word]) => (
            <option key={t} value={t}>
              {word}
            </option>
          ))}
        </select>
      </Field>
      <Field id={driverId} label="Driver">
        <select
          id={driverId}
          aria-describedby={`${driverId}-notes`}
          value={ref}
          onChange={(e) => {
            setRef(e.target.value)
            setConfig({})
            setTried(false)
          }}
        >
          {drivers.map((d) => (
            <option key={d.ref}>{d.ref}</option>
          ))}
        </select>
      </Field>
      <SchemaForm context={{ root: schema, driver: ref, findings, ...offers }} value={value} onChange={setConfig} />
      <FormError error={change.error} shown={(path) => ['name', 'description', 'driverConfig'].includes(path[0] ?? '')} />
      <div className="actions">
        <button type="submit" className="primary" disabled={change.isPending}>
          {change.isPending ? 'Creating…' : 'Create environment'}
        </button>
      </div>
    </form>
  )
}

/** Puts the cursor where the first thing is to be mended. */
export function focusFirst(form: HTMLElement, path: string[] | undefined) {
  if (path) form.querySelector<HTMLElement>(`[data-field="${CSS.escape(path.join('/'))}"]`)?.focus()
}
