// What begins rollouts of an application without a person: its triggers with their last decisions, why one did or did not begin, and the
// environments in which automation is held since a rollback.
import { useId, useState } from 'react'
import { Link } from 'react-router'
import { accepted, ask } from '../api/client'
import {
  PutTrigger, ReleasePromotionHold, RemoveTrigger, TriggerDecisions, TriggerKinds, Triggers as Operation, type TriggerKind, type TriggerKindsData, type TriggersData,
} from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { SchemaForm } from '../form/SchemaForm'
import { prune, validate, withDefaults, type Json, type Schema } from '../form/schema'
import { editsOf, type Edits } from '../logic/edits'
import { everySet, type EverySet } from '../logic/everyset'
import { announce } from './announce'
import { Confirm } from './confirm'
import { Dialog } from './dialog'
import { Field, findingsUnder, FormError } from './form'
import { Icon } from './icon'
import { Waiting } from './page'
import { Chip } from './state'
import { Ago } from './time'
import { displayed } from '../logic/names'

type App = NonNullable<TriggersData['application']>
type Trigger = App['triggers'][number]
type Hold = App['promotionHolds'][number]
type Decision = NonNullable<Trigger['lastDecision']>

const outcomes: Record<Decision['outcome'], { tone: 'good' | 'wait' | 'quiet'; icon: string; word: string }> = {
  PENDING: { tone: 'wait', icon: 'pending', word: 'Not decided yet' },
  WAITING: { tone: 'wait', icon: 'pending', word: 'Waits' },
  BEGAN: { tone: 'good', icon: 'completed', word: 'Began' },
  QUEUED: { tone: 'wait', icon: 'pending', word: 'Queued' },
  DECLINED: { tone: 'quiet', icon: 'paused', word: 'Nothing began' },
  DONE: { tone: 'good', icon: 'completed', word: 'Done' },
}

export function Triggers({ name }: { name: string }) {
  const query = useAsk(Operation, { name }, { live: (d) => Boolean(d.application?.triggers.some((t) => t.lastDecision && ['PENDING', 'WAITING', 'QUEUED'].includes(t.lastDecision.outcome))) })
  const [editing, setEditing] = useState<Trigger | 'new' | null>(null)
  const [switching, setSwitching] = useState<Trigger | null>(null)
  const [removing, setRemoving] = useState<Trigger | null>(null)
  const [looking, setLooking] = useState<Trigger | null>(null)
  const [releasing, setReleasing] = useState<Hold | null>(null)
  const app = query.data?.application
  const changed = () => query.refetch()
  const template = app ? everySet(app.flowDefinition?.definition, app.triggers.map((t) => t.kind)) : null
  return (
    <section className="card" aria-labelledby="triggers">
      <header className="line">
        <h2 id="triggers">Triggers</h2>
        <button type="button" onClick={() => setEditing('new')}>
          Add a trigger
        </button>
      </header>
      {!app && <Waiting query={query} what="triggers" />}
      {app?.promotionHolds.map((h) => (
        <p key={h.environment.id} className="banner">
          <Icon name="paused" />
          <span>
            Automation begins nothing in <bdi>{displayed(h.environment)}</bdi>: <Link to={`/rollouts/${h.rollout.id}`}>{h.rollout.id}</Link> rolled back there <Ago at={h.since} />.
          </span>
          <button type="button" onClick={() => setReleasing(h)}>
            Release {displayed(h.environment)}
          </button>
        </p>
      ))}
      {template && <DeployEverySet application={name} template={template} changed={changed} />}
      {app && (
        <div className="scroll" tabIndex={0} role="region" aria-label="Triggers and their last decisions">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Trigger</th>
                <th scope="col">State</th>
                <th scope="col">Last decision</th>
                <th scope="col">Actions</th>
              </tr>
            </thead>
            <tbody>
              {app.triggers.map((t) => (
                <tr key={t.name}>
                  <th scope="row">
                    {t.name} <span className="faint">{t.kind.toLowerCase()}</span>
                    <Edited edits={editsOf(t.config)} />
                  </th>
                  <td>{t.enabled ? 'on' : 'off'}</td>
                  <td>{t.lastDecision ? <Decided decision={t.lastDecision} /> : <span className="faint">{t.kind === 'MANUAL' ? 'people and machines ask' : 'nothing has happened yet'}</span>}</td>
                  <td className="buttons">
                    <button type="button" aria-label={`Switch ${t.enabled ? 'off' : 'on'} ${t.name}`} onClick={() => setSwitching(t)}>
                      {t.enabled ? 'Switch off' : 'Switch on'}
                    </button>
                    {t.kind !== 'MANUAL' && (
                      <>
                        <button type="button" aria-label={`Decisions of ${t.name}`} onClick={() => setLooking(t)}>
                          Decisions
                        </button>
                        <button type="button" aria-label={`Change ${t.name}`} onClick={() => setEditing(t)}>
                          Change
                        </button>
                        <button type="button" aria-label={`Remove ${t.name}`} onClick={() => setRemoving(t)}>
                          Remove
                        </button>
                      </>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {editing && <Edit application={name} trigger={editing === 'new' ? null : editing} changed={changed} onClose={() => setEditing(null)} />}
      {looking && <Decisions application={name} trigger={looking.name} onClose={() => setLooking(null)} />}
      {switching && (
        <Confirm
          title={`Switch ${switching.name} ${switching.enabled ? 'off' : 'on'}`}
          submit={switching.enabled ? 'Switch off' : 'Switch on'}
          tone="primary"
          reasoned
          done={`${switching.name} is ${switching.enabled ? 'off' : 'on'}.`}
          onClose={() => setSwitching(null)}
          send={async (reason) => {
            const { name: trigger, kind, config, enabled } = switching
            accepted((await ask(PutTrigger, { input: { application: name, name: trigger, kind, config, enabled: !enabled, reason } })).putTrigger)
            await changed()
          }}
        >
          <p>{switching.kind === 'MANUAL' ? 'While it is off, neither people nor machines create rollouts. Rolling back stays possible.' : 'While it is off, it begins nothing, and forgets what happens meanwhile.'}</p>
        </Confirm>
      )}
      {removing && (
        <Confirm
          title={`Remove ${removing.name}`}
          submit="Remove"
          reasoned
          done={`${removing.name} was removed.`}
          onClose={() => setRemoving(null)}
          send={async (reason) => {
            accepted((await ask(RemoveTrigger, { input: { application: name, name: removing.name, reason } })).removeTrigger)
            await changed()
          }}
        >
          <p>What it has to decide about begins nothing. A rollout that it has queued stays in the queue.</p>
        </Confirm>
      )}
      {releasing && (
        <Confirm
          title={`Release ${displayed(releasing.environment)}`}
          submit="Release"
          tone="primary"
          reasoned
          done={`Automation may begin rollouts in ${displayed(releasing.environment)} again.`}
          onClose={() => setReleasing(null)}
          send={async (reason) => {
            accepted((await ask(ReleasePromotionHold, { input: { application: name, environment: releasing.environment.name, reason } })).releasePromotionHold)
            await changed()
          }}
        >
          <p>Triggers that react to version sets decide anew at once, and may begin a rollout of the newest one.</p>
        </Confirm>
      )}
    </section>
  )
}

/** One click for an application whose rollouts people begin: every new version set goes to its first environment. */
function DeployEverySet({ application, template, changed }: { application: string; template: EverySet; changed: () => Promise<unknown> }) {
  const save = useChange(
    async () => accepted((await ask(PutTrigger, { input: { application, name: template.name, kind: 'VERSION', config: template.config, enabled: true } })).putTrigger),
    () => {
      announce(`Every new version set is deployed to ${template.environment}`)
      void changed()
    },
  )
  return (
    <div className="line">
      <p>
        Nothing begins a rollout here but people and machines. A trigger can deploy each new version set to <bdi>{template.environment}</bdi>, the first environment of the pipeline, once no other one has arrived for two minutes.
      </p>
      <button type="button" disabled={save.isPending} onClick={() => save.mutate(undefined)}>
        Deploy every new set to {template.environment}
      </button>
      <FormError error={save.error} shown={() => false} />
    </div>
  )
}

/** A decision with its sentence: also one that began nothing. */
function Decided({ decision }: { decision: Decision }) {
  const look = outcomes[decision.outcome]
  return (
    <>
      <Chip tone={look.tone} icon={look.icon} word={look.word} /> <Ago at={decision.at} />
      {decision.rollout && (
        <>
          {' '}
          <Link to={`/rollouts/${decision.rollout.id}`}>{decision.rollout.id}</Link>
        </>
      )}
      {decision.sender && (
        <span className="faint" data-sender>
          {' '}
          sent by <bdi>{decision.sender.name}</bdi> ({decision.sender.principalType} {decision.sender.principalId})
        </span>
      )}
      {decision.reason && <p dir="auto">{decision.reason}</p>}
      {decision.edit && <EditResult edit={decision.edit} />}
    </>
  )
}

/** What a trigger edits before it begins a rollout, value by value. */
function Edited({ edits }: { edits: Edits | null }) {
  if (!edits) return null
  return (
    <div className="faint" data-edits>
      <p>
        edits <bdi>{edits.repository}</bdi>, branch <bdi>{edits.branch}</bdi>, by {edits.proposes ? 'pull request' : 'commit'}:
      </p>
      <ul>
        {edits.files.map((f, i) => (
          <li key={i}>
            <bdi className="mono">{f.path}</bdi>, {f.place && <bdi className="mono">{f.place}</bdi>} becomes <bdi className="mono">{f.from}</bdi>
          </li>
        ))}
      </ul>
    </div>
  )
}

const editOutcomes: Record<NonNullable<Decision['edit']>['state'], string> = {
  PENDING: 'Files are being edited', COMMITTED: 'Files edited', PROPOSED: 'Files edited by pull request', UNCHANGED: 'Files had the values already', FAILED: 'Files not edited',
}

/** What came of the files, with a link to where it is to be seen. */
function EditResult({ edit }: { edit: NonNullable<Decision['edit']> }) {
  const to = edit.link || edit.commitLink
  return (
    <p data-edit={edit.state.toLowerCase()}>
      {editOutcomes[edit.state]}
      {to && /^https?:/.test(to) ? (
        <>
          :{' '}
          <a href={to} rel="noreferrer">
            {edit.link ? 'the pull request' : `commit ${edit.commit.slice(0, 10)}`}
          </a>
        </>
      ) : (
        edit.commit && `: commit ${edit.commit.slice(0, 10)}`
      )}
      {edit.why && <>: <bdi>{edit.why}</bdi></>}
    </p>
  )
}

function Decisions({ application, trigger, onClose }: { application: string; trigger: string; onClose: () => void }) {
  const query = useAsk(TriggerDecisions, { name: application })
  const all = query.data?.application?.triggers.find((t) => t.name === trigger)?.decisions
  return (
    <Dialog title={`Decisions of ${trigger}`} submit="Close" busy={false} wide onSubmit={onClose} onClose={onClose}>
      {!all && <Waiting query={query} what="decisions" />}
      {all?.length === 0 && <p>Nothing has happened yet.</p>}
      <ol>
        {all?.map((d) => (
          <li key={d.cause}>
            <Decided decision={d} /> <span className="faint mono">{d.cause}</span>
          </li>
        ))}
      </ol>
    </Dialog>
  )
}

function Edit(props: { application: string; trigger: Trigger | null; changed: () => Promise<unknown>; onClose: () => void }) {
  const kinds = useAsk(TriggerKinds, {}, { once: true })
  if (!kinds.data) return null
  return <EditForm {...props} kinds={kinds.data.triggerKinds.filter((k) => !k.default)} />
}

interface EditProps {
  application: string
  trigger: Trigger | null
  changed: () => Promise<unknown>
  onClose: () => void
  kinds: TriggerKindsData['triggerKinds']
}

function EditForm({ application, trigger, changed, onClose, kinds }: EditProps) {
  const [kind, setKind] = useState<TriggerKind>(trigger?.kind ?? 'VERSION')
  const [name, setName] = useState(trigger?.name ?? '')
  const [config, setConfig] = useState<Json>((trigger?.config ?? {}) as Json)
  const [tried, setTried] = useState(false)
  const id = useId()
  const chosen = kinds.find((k) => k.kind === kind)
  const schema = (chosen?.schema ?? true) as Schema
  const value = prune(schema, schema, withDefaults(schema, schema, config)) as Json
  const local = validate(schema, schema, value)
  const save = useChange(
    async () => accepted((await ask(PutTrigger, { input: { application, name, kind, config: value, enabled: trigger?.enabled ?? true } })).putTrigger),
    () => {
      announce(trigger ? 'Trigger changed' : 'Trigger added')
      void changed()
      onClose()
    },
  )
  const findings = [...(tried ? local : []), ...findingsUnder(save.error, 'config')]
  return (
    <Dialog
      title={trigger ? `Change ${trigger.name}` : 'Add a trigger'}
      submit="Save"
      busy={save.isPending}
      wide
      onSubmit={() => {
        setTried(true)
        if (local.length === 0) save.mutate(undefined)
      }}
      onClose={onClose}
    >
      {!trigger && (
        <>
          <Field id={`${id}-name`} label="Name" problem={findingsUnder(save.error, 'name')[0]?.message}>
            <input id={`${id}-name`} aria-describedby={`${id}-name-notes`} required pattern="[a-z0-9][a-z0-9\-]*" maxLength={63} value={name} onChange={(e) => setName(e.target.value)} />
          </Field>
          <Field id={`${id}-kind`} label="Kind">
            <select
              id={`${id}-kind`}
              aria-describedby={`${id}-kind-notes`}
              value={kind}
              onChange={(e) => {
                setKind(e.target.value as TriggerKind)
                setConfig({})
                setTried(false)
              }}
            >
              {kinds.map((k) => (
                <option key={k.kind} value={k.kind}>
                  {k.kind.toLowerCase()}
                </option>
              ))}
            </select>
          </Field>
        </>
      )}
      <p>{chosen?.description}</p>
      <SchemaForm context={{ root: schema, driver: kind, findings, agents: [] }} value={value} onChange={setConfig} />
      <FormError error={save.error} shown={(path) => path[0] === 'name' || path[0] === 'config'} />
    </Dialog>
  )
}
