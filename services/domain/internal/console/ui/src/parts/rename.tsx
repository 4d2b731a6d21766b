// Giving an application another name, and an environment or a service another display name.
import { useState } from 'react'
import { accepted, ask } from '../api/client'
import { RenameApplication, RenameEnvironment, RenameService } from '../api/generated'
import { useChange } from '../api/hooks'
import type { Ability } from '../logic/ability'
import { displayed } from '../logic/names'
import { Text } from '../pages/new-application'
import { ActButton } from './act'
import { announce } from './announce'
import { Dialog } from './dialog'
import { findingsUnder, FormError } from './form'
import { Reason } from './reason'

type Kind = 'application' | 'environment' | 'service'

interface RenameProps {
  of: { id: string; name: string; displayName?: string }
  what: Kind
  can: Ability
  /** Called with the new name. */
  changed: (name: string) => void
}

/** A button that opens the form; can says whether the viewer may. */
export function Rename({ of, what, can, changed }: RenameProps) {
  const [open, setOpen] = useState(false)
  return (
    <>
      <ActButton ability={can} label={`Rename ${displayed(of)}`} onClick={() => setOpen(true)}>
        Rename
      </ActButton>
      {open && (
        <RenameForm
          of={of}
          what={what}
          onClose={() => setOpen(false)}
          onDone={(name) => {
            setOpen(false)
            changed(name)
          }}
        />
      )}
    </>
  )
}

async function send(what: Kind, id: string, name: string, reason: string) {
  switch (what) {
    case 'application':
      return accepted((await ask(RenameApplication, { input: { application: id, name, reason } })).renameApplication)
    case 'environment':
      return accepted((await ask(RenameEnvironment, { input: { environmentId: id, displayName: name, reason } })).renameEnvironment)
    case 'service':
      return accepted((await ask(RenameService, { input: { serviceId: id, displayName: name, reason } })).renameService)
  }
}

/** What stays as it is. */
export function stays(what: Kind, name: string): string {
  return what === 'application'
    ? `It is still found as ${name}, until another application is called that. Nothing in a cluster is renamed.`
    : `It is still found as ${name}: pipelines, policies, configurations and gates go by that name for ever. ${name} shows it by that again.`
}

interface FormProps {
  of: RenameProps['of']
  what: Kind
  onClose: () => void
  onDone: (name: string) => void
}

export function RenameForm({ of, what, onClose, onDone }: FormProps) {
  const before = displayed(of)
  const [name, setName] = useState(before)
  const [reason, setReason] = useState('')
  const change = useChange(
    () => send(what, of.id, name, reason),
    () => {
      announce(`${before} is called ${name} now.`)
      onDone(name)
    },
  )
  const field = what === 'application' ? 'name' : 'displayName'
  return (
    <Dialog title={`Rename ${before}`} submit="Rename" busy={change.isPending} disabled={!name || name === before} onSubmit={() => change.mutate(undefined)} onClose={onClose}>
      <Text label="Name" value={name} onChange={setName} problem={findingsUnder(change.error, field)[0]?.message} field={field} help={stays(what, of.name)} />
      <Reason value={reason} onChange={setReason} />
      <FormError error={change.error} shown={(path) => path[0] === field} />
    </Dialog>
  )
}
