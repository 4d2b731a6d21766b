// Changes an environment that exists: its description, and its driver, configuration or agent by a new driver binding.
import { useId, useState } from 'react'
import { accepted, ask } from '../api/client'
import { Drivers, UpdateEnvironment, type DriversData, type EnvironmentPageData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { useOffers } from '../form/offers'
import { isRecord, prune, validate, withDefaults, type Json, type Schema } from '../form/schema'
import { SchemaForm } from '../form/SchemaForm'
import { ability } from '../logic/ability'
import { Text } from '../pages/new-application'
import { ActButton } from './act'
import { announce } from './announce'
import { Dialog } from './dialog'
import { Field, findingsUnder, FormError } from './form'
import { Waiting } from './page'
import { Reason } from './reason'
import { displayed } from '../logic/names'

type Environment = NonNullable<EnvironmentPageData['environment']>

export function ChangeEnvironment({ environment }: { environment: Environment }) {
  const [open, setOpen] = useState(false)
  return (
    <p className="buttons">
      <ActButton ability={ability(environment.viewerCan, 'updateEnvironment')} onClick={() => setOpen(true)}>
        Change
      </ActButton>
      {open && <Loaded environment={environment} onClose={() => setOpen(false)} />}
    </p>
  )
}

function Loaded({ environment, onClose }: { environment: Environment; onClose: () => void }) {
  const drivers = useAsk(Drivers, {}, { once: true })
  if (drivers.data) return <ChangeForm environment={environment} drivers={drivers.data.drivers} onClose={onClose} />
  return (
    <Dialog title={`Change ${displayed(environment)}`} submit="Save" busy disabled onSubmit={onClose} onClose={onClose}>
      <Waiting query={drivers} what="drivers" />
    </Dialog>
  )
}

export function ChangeForm({ environment, drivers, onClose }: { environment: Environment; drivers: DriversData['drivers']; onClose: () => void }) {
  const now = environment.driverBindings[0]
  const [description, setDescription] = useState(environment.description)
  const [ref, setRef] = useState(now?.driverRef ?? '')
  const [config, setConfig] = useState<Json>(isRecord(now?.driverConfig) ? now.driverConfig : {})
  const [reason, setReason] = useState('')
  const [tried, setTried] = useState(false)
  const driverId = useId()
  const schema = (drivers.find((d) => d.ref === ref)?.environmentSchema ?? true) as Schema
  const offers = useOffers(schema)
  const value = prune(schema, schema, withDefaults(schema, schema, config)) as Json
  const local = validate(schema, schema, value)
  const change = useChange(
    async () =>
      accepted((await ask(UpdateEnvironment, { input: { environmentId: environment.id, description, driverRef: ref, driverConfig: value, bindingVersion: now?.version, reason } })).updateEnvironment),
    () => {
      announce(`${displayed(environment)} is changed.`)
      onClose()
    },
  )
  const findings = [...(tried ? local : []), ...findingsUnder(change.error, 'driverConfig')]
  const submit = () => {
    setTried(true)
    if (local.length === 0) change.mutate(undefined)
  }
  return (
    <Dialog title={`Change ${displayed(environment)}`} submit="Save" wide busy={change.isPending} onSubmit={submit} onClose={onClose}>
      <p>
        Another driver or configuration is a new binding: {displayed(environment)} is onboarded with it, then every application in it is set up again. Until then no new rollout begins here; active rollouts keep the binding that they began with.
      </p>
      <Text label="Description" value={description} onChange={setDescription} problem={findingsUnder(change.error, 'description')[0]?.message} field="description" optional />
      <Field id={driverId} label="Driver">
        <select
          id={driverId}
          aria-describedby={`${driverId}-notes`}
          value={ref}
          onChange={(e) => {
            const same = e.target.value.split('@')[0] === now?.driverRef.split('@')[0]
            setRef(e.target.value)
            setConfig(same && isRecord(now?.driverConfig) ? now.driverConfig : {})
            setTried(false)
          }}
        >
          {[...new Set([...drivers.map((d) => d.ref), ref])].map((r) => (
            <option key={r}>{r}</option>
          ))}
        </select>
      </Field>
      <SchemaForm context={{ root: schema, driver: ref, findings, ...offers }} value={value} onChange={setConfig} />
      <Reason value={reason} onChange={setReason} />
      <FormError error={change.error} shown={(path) => path[0] === 'description' || path[0] === 'driverConfig'} />
    </Dialog>
  )
}
