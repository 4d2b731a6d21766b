// Giving an application another name. By those that it had it is still found.
import { useState } from 'react'
import { accepted, ask } from '../api/client'
import { RenameApplication } from '../api/generated'
import { useChange } from '../api/hooks'
import type { Ability } from '../logic/ability'
import { Text } from '../pages/new-application'
import { ActButton } from './act'
import { announce } from './announce'
import { Dialog } from './dialog'
import { findingsUnder, FormError } from './form'
import { Reason } from './reason'

interface RenameProps {
  of: { id: string; name: string }
  can: Ability
  /** Called with the new name. */
  changed: (name: string) => void
}

/** A button that opens the form; can says whether the viewer may. */
export function Rename({ of, can, changed }: RenameProps) {
  const [open, setOpen] = useState(false)
  return (
    <>
      <ActButton ability={can} label={`Rename ${of.name}`} onClick={() => setOpen(true)}>
        Rename
      </ActButton>
      {open && (
        <RenameForm
          of={of}
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

function RenameForm({ of, onClose, onDone }: { of: RenameProps['of']; onClose: () => void; onDone: (name: string) => void }) {
  const [name, setName] = useState(of.name)
  const [reason, setReason] = useState('')
  const change = useChange(
    async () => accepted((await ask(RenameApplication, { input: { application: of.id, name, reason } })).renameApplication),
    () => {
      announce(`${of.name} is called ${name} now.`)
      onDone(name)
    },
  )
  return (
    <Dialog title={`Rename ${of.name}`} submit="Rename" busy={change.isPending} disabled={!name || name === of.name} onSubmit={() => change.mutate(undefined)} onClose={onClose}>
      <Text
        label="Name"
        value={name}
        onChange={setName}
        problem={findingsUnder(change.error, 'name')[0]?.message}
        field="name"
        help={`It is still found as ${of.name}, until another application is called that. Nothing in a cluster is renamed.`}
      />
      <Reason value={reason} onChange={setReason} />
      <FormError error={change.error} shown={(path) => path[0] === 'name'} />
    </Dialog>
  )
}
