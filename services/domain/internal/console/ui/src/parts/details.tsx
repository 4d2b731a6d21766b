// What people keep about an application, an environment or a service: its labels, its owner, its links and its description.
import { useId, useState } from 'react'
import { accepted, ask } from '../api/client'
import { SetDetails, SetLabels } from '../api/generated'
import { useChange } from '../api/hooks'
import type { Ability } from '../logic/ability'
import { changes, lines, parseLines, type Values } from '../logic/details'
import { Text } from '../pages/new-application'
import { ActButton } from './act'
import { announce } from './announce'
import { Dialog } from './dialog'
import { Field, findingsUnder, FormError } from './form'
import { Reason } from './reason'
import { displayed } from '../logic/names'

export interface Detailed {
  id: string
  name: string
  displayName?: string
  description: string
  owner: string
  labels: unknown
  links: { title: string; url: string }[]
}

/** The labels, the owner and the links; nothing where there are none. */
export function Details({ of }: { of: Detailed }) {
  const labels = Object.entries(of.labels as Values)
  if (labels.length + of.links.length === 0 && !of.owner) return null
  return (
    <p className="line" aria-label={`Details of ${displayed(of)}`}>
      {of.owner && <span dir="auto">Owner: {of.owner}</span>}
      {labels.map(([key, value]) => (
        <span key={key} className="faint mono">
          {key}={value}
        </span>
      ))}
      {of.links.map((link) => (
        <a key={link.title} href={link.url} rel="noreferrer" dir="auto">
          {link.title}
        </a>
      ))}
    </p>
  )
}

/** A button that opens the form; can says whether the viewer may. */
export function EditDetails({ of, can, changed }: { of: Detailed; can: Ability; changed: () => void }) {
  const [open, setOpen] = useState(false)
  return (
    <>
      <ActButton ability={can} label={`Details of ${displayed(of)}`} onClick={() => setOpen(true)}>
        Details
      </ActButton>
      {open && (
        <DetailsForm
          of={of}
          onClose={() => setOpen(false)}
          onDone={() => {
            setOpen(false)
            changed()
          }}
        />
      )}
    </>
  )
}

export function DetailsForm({ of, onClose, onDone }: { of: Detailed; onClose: () => void; onDone: () => void }) {
  const wereLabels = of.labels as Values
  const wereLinks = Object.fromEntries(of.links.map((link) => [link.title, link.url]))
  const [description, setDescription] = useState(of.description)
  const [owner, setOwner] = useState(of.owner)
  const [labels, setLabels] = useState(lines(wereLabels))
  const [links, setLinks] = useState(lines(wereLinks))
  const [reason, setReason] = useState('')
  const parsedLabels = parseLines(labels)
  const parsedLinks = parseLines(links)
  const newLabels = changes(wereLabels, parsedLabels.values)
  const newLinks = changes(wereLinks, parsedLinks.values)
  const others = description !== of.description || owner !== of.owner || Object.keys(newLinks.set).length + newLinks.unset.length > 0
  const relabels = Object.keys(newLabels.set).length + newLabels.unset.length > 0
  const change = useChange(
    async () => {
      if (others) {
        const setLinks = Object.entries(newLinks.set).map(([title, url]) => ({ title, url }))
        accepted((await ask(SetDetails, { input: { subjectId: of.id, description, owner, setLinks, unsetLinks: newLinks.unset, reason } })).setDetails)
      }
      if (relabels) accepted((await ask(SetLabels, { input: { subjectId: of.id, set: newLabels.set, unset: newLabels.unset, reason } })).setLabels)
    },
    () => {
      announce(`${displayed(of)} is changed.`)
      onDone()
    },
  )
  const wrong = Boolean(parsedLabels.wrong ?? parsedLinks.wrong)
  const problem = (field: string) => findingsUnder(change.error, field)[0]?.message
  const shown = ['description', 'owner', 'set', 'setLinks']
  return (
    <Dialog
      title={`Details of ${displayed(of)}`}
      submit="Save"
      busy={change.isPending}
      disabled={wrong || !(others || relabels)}
      onSubmit={() => change.mutate(undefined)}
      onClose={onClose}
    >
      <Text label="Description" value={description} onChange={setDescription} problem={problem('description')} field="description" optional />
      <Text label="Owner" value={owner} onChange={setOwner} problem={problem('owner')} field="owner" help="Who answers for it, such as a team. It gives no permission." optional />
      <Lines label="Labels" value={labels} onChange={setLabels} wrong={parsedLabels.wrong} problem={problem('set')} help="One on each line: team=payments. Chains, policies and notifications select by them." />
      <Lines label="Links" value={links} onChange={setLinks} wrong={parsedLinks.wrong} problem={problem('setLinks')} help="One on each line: runbook=https://wiki.example.com/shop" />
      <Reason value={reason} onChange={setReason} />
      <FormError error={change.error} shown={(path) => shown.includes(String(path[0]))} />
    </Dialog>
  )
}

interface LinesProps {
  label: string
  value: string
  onChange: (v: string) => void
  wrong: string | undefined
  problem: string | undefined
  help: string
}

function Lines({ label, value, onChange, wrong, problem, help }: LinesProps) {
  const id = useId()
  return (
    <Field id={id} label={label} help={help} problem={wrong === undefined ? problem : `Found ${wrong}; expected name=value`} optional>
      <textarea id={id} aria-describedby={`${id}-notes`} rows={4} spellCheck={false} value={value} onChange={(e) => onChange(e.target.value)} />
    </Field>
  )
}
