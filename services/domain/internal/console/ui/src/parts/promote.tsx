// The one dialog that starts a rollout, wherever it is opened from: a new version set, an older one, a rollback. It shows what
// would change in each environment, compared with what is live there, before anything does.
import { useId, useState } from 'react'
import { useNavigate } from 'react-router'
import { accepted, ask } from '../api/client'
import { CreateRollout, OneSet, RollbackRollout, Sets, Viewer, type SetFields, type SetsData, type StrategyChoice } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { ability } from '../logic/ability'
import { earlier, targets, type Target } from '../logic/scope'
import { isOver } from '../logic/waiting'
import { announce } from './announce'
import { Changes } from './changes'
import { Dialog } from './dialog'
import { Field, findingsUnder, FormError, sentence } from './form'
import { GlassMeans } from './glass'
import { Icon } from './icon'
import { inputsSchema } from '../logic/inputs'
import { SchemaForm } from '../form/SchemaForm'
import { prune, validate, withDefaults, type Json } from '../form/schema'
import { Loading } from './page'
import { WouldCommit } from './preview'
import { Reason } from './reason'
import { displayed } from '../logic/names'

interface PromoteProps {
  application: string
  /** The set that is chosen at first; otherwise the newest. */
  setId?: string | undefined
  /** The rollout to go back from: it ends, and that of an earlier set begins. */
  rollBackFrom?: { id: string; state: string; versionSet: { id: string; name: string; createdAt: string } }
  onClose: () => void
}

type App = NonNullable<SetsData['application']>

/** Why nothing can be rolled out now, as the server puts it; it refuses by the same rule. */
function hindrance(app: App): string | null {
  const can = ability(app.viewerCan, 'createRollout')
  return can.allowed ? null : sentence(can.reason ?? 'It may not be rolled out now')
}

/** What becomes of the rollout that is under way, where the application's policy does not refuse a newer one. */
function meanwhile(app: App): string | null {
  if (!app.activeRollout) return null
  return app.rolloutPolicy.onNewer === 'SUPERSEDE' ? `${app.activeRollout.id} is waiting, and is cancelled for this one.` : `${app.activeRollout.id} is active: this one starts when it has ended.`
}

export function Promote({ application, setId, rollBackFrom, onClose }: PromoteProps) {
  const query = useAsk(Sets, { application, first: 30 })
  const [wanted, setChosen] = useState(setId ?? '')
  const [reason, setReason] = useState('')
  const [strategy, setStrategy] = useState<StrategyChoice>('AUTO')
  const [given, setGiven] = useState<Json>({})
  const [tried, setTried] = useState(false)
  const navigate = useNavigate()
  const id = useId()
  const app = query.data?.application
  const all = app?.versionSets.nodes ?? []
  const sets = rollBackFrom ? earlier(all, rollBackFrom.versionSet) : all
  // What was live before a rollout may be newer than the rollout's own set; returning to it is not a rollback.
  const chosen = all.some((s) => s.id === wanted) && !sets.some((s) => s.id === wanted) ? '' : wanted
  // The newest need not be the last one made, nor on the page.
  const listed = sets.find((s) => s.id === chosen) ?? (chosen === '' ? (rollBackFrom ? sets[0] : (app?.newestVersionSet ?? undefined)) : undefined)
  const older = useAsk(OneSet, { id: chosen }, { once: true, enabled: Boolean(app) && !listed && chosen !== '' })
  // A query keeps what it answered before until it has another answer: that is no set that was chosen.
  const set = listed ?? (older.data?.node?.id === chosen ? older.data.node : undefined)
  const [leftOut, setLeftOut] = useState<ReadonlySet<string>>(new Set())
  const [glass, setGlass] = useState(false)
  const viewer = useAsk(Viewer, {}, { once: true })
  const mayBreak = rollBackFrom !== undefined && viewer.data?.viewer.principalType === 'user' && viewer.data.viewer.permissions.includes('BREAK_GLASS')
  const places = app && set && rollBackFrom ? targets(app, set.id) : []
  const going = places.filter((p) => !p.unchanged && !leftOut.has(p.name))
  const nowhere = places.length > 0 && going.length === 0
  // A rollback has the inputs of what it goes back to.
  const schema = rollBackFrom ? null : inputsSchema(app?.flowDefinition?.definition)
  const inputs = schema ? (prune(schema, schema, withDefaults(schema, schema, given)) as Json) : null
  const wrong = schema ? validate(schema, schema, inputs) : []
  const change = useChange(
    async () => {
      const versionSetId = set?.id ?? chosen
      // What is left out is named, and not what is left: the server knows better than this page what would change.
      const exclude = places.filter((p) => !p.unchanged && leftOut.has(p.name)).map((p) => p.name)
      if (rollBackFrom) return { rollout: accepted((await ask(RollbackRollout, { input: { rolloutId: rollBackFrom.id, versionSetId, reason, exclude, breakGlass: glass } })).rollbackRollout).rollout, queued: null }
      return accepted((await ask(CreateRollout, { input: { versionSetId, reason, strategy, ...(inputs ? { inputs } : {}) } })).createRollout)
    },
    (payload) => {
      announce(payload.queued ? `${set?.name ?? 'It'} is pending: ${payload.queued.why}.` : `Rollout of ${set?.name ?? 'the version set'} started.`)
      onClose()
      if (payload.rollout) void navigate(`/rollouts/${payload.rollout.id}`)
    },
  )
  const blocked = app && !rollBackFrom ? hindrance(app) : null
  const note = app && !rollBackFrom && !blocked ? meanwhile(app) : null
  const verb = rollBackFrom ? 'Roll back' : 'Roll out'
  return (
    <Dialog title={`${verb} ${application}`} submit={glass ? 'Break glass and roll back' : verb} tone={glass ? 'danger' : 'primary'} busy={change.isPending} disabled={!app || blocked !== null || !set || nowhere || (glass && reason.trim() === '')} onSubmit={() => {
        setTried(true)
        if (wrong.length === 0) change.mutate(undefined)
      }} onClose={onClose} wide>
      {!app ? (
        <Loading what="version sets" />
      ) : (
        <>
          {rollBackFrom && (
            <p>
              {isOver(rollBackFrom.state) ? '' : `The rollout of ${rollBackFrom.versionSet.name} is cancelled. `}A rollback is a rollout of an earlier version set. It goes through the same gates, but only to environments where it changes something.
            </p>
          )}
          {(blocked ?? note) && (
            <p className="banner wait">
              <Icon name="clock" /> {blocked ?? note}
            </p>
          )}
          {sets.length === 0 && <p className="banner wait">{rollBackFrom ? `There is no version set before ${rollBackFrom.versionSet.name}.` : 'There is no version set yet: the first is created once every service has a version.'}</p>}
          <Field id={id} label="Version set">
            <select id={id} aria-describedby={`${id}-notes`} value={set?.id ?? chosen} onChange={(e) => setChosen(e.target.value)}>
              {!listed && chosen && <option value={chosen}>{set?.name ?? 'An older one'}</option>}
              {listed && !sets.some((s) => s.id === listed.id) && <option value={listed.id}>{listed.name}</option>}
              {sets.map((s) => (
                <option key={s.id} value={s.id}>
                  {s.name} ({s.entries.map((e) => `${displayed(e.service)} ${e.version.name}`).join(', ')})
                </option>
              ))}
            </select>
          </Field>
          {set && !rollBackFrom && (
            <Field id={`${id}-strategy`} label="Weights">
              <select id={`${id}-strategy`} aria-describedby={`${id}-strategy-notes`} value={strategy} onChange={(e) => setStrategy(e.target.value as StrategyChoice)}>
                <option value="AUTO">As planned: by the pipeline and what is deployed</option>
                <option value="PIPELINE">Stop at every weight</option>
                <option value="QUICK">Quick sync: stop at none, and require what they require before</option>
              </select>
            </Field>
          )}
          {set && schema && (
            <fieldset className="group">
              <legend>Inputs</legend>
              <SchemaForm context={{ root: schema, driver: 'inputs', findings: [...(tried ? wrong : []), ...findingsUnder(change.error, 'inputs')], agents: [] }} value={inputs} onChange={setGiven} />
            </fieldset>
          )}
          {set && rollBackFrom && <Places places={places} set={set.name} leftOut={leftOut} onChange={setLeftOut} nowhere={nowhere} />}
          {set && <Effect app={app} set={set} only={rollBackFrom ? going.map((p) => p.name) : null} />}
          {set && !blocked && wrong.length === 0 && <WouldCommit inputs={inputs} setId={set.id} strategy={rollBackFrom ? 'AUTO' : strategy} only={rollBackFrom ? going.map((p) => p.name) : null} />}
          {mayBreak && set && (
            <>
              <Field id={`${id}-glass`} label="Break glass: override the approvals of this rollback" inline>
                <input id={`${id}-glass`} aria-describedby={`${id}-glass-notes`} type="checkbox" checked={glass} onChange={(e) => setGlass(e.target.checked)} />
              </Field>
              {glass && <GlassMeans />}
            </>
          )}
          <Reason value={reason} onChange={setReason} required={glass} />
        </>
      )}
      <FormError error={change.error} shown={(path) => schema !== null && path[0] === 'inputs'} />
    </Dialog>
  )
}

/** Where a rollback goes: everywhere that it changes something, until an environment is taken out. */
function Places(props: { places: Target[]; set: string; leftOut: ReadonlySet<string>; onChange: (leftOut: ReadonlySet<string>) => void; nowhere: boolean }) {
  const { places, set, leftOut, onChange, nowhere } = props
  const id = useId()
  const toggle = (name: string, to: boolean) => {
    const next = new Set(leftOut)
    if (to) next.delete(name)
    else next.add(name)
    onChange(next)
  }
  return (
    <fieldset className="scopes" aria-describedby={nowhere ? id : undefined}>
      <legend>Environments to roll back</legend>
      {places.map((p) => (
        <label key={p.name}>
          <input type="checkbox" disabled={p.unchanged} checked={!p.unchanged && !leftOut.has(p.name)} onChange={(e) => toggle(p.name, e.target.checked)} />
          <span>
            {p.displayName} <span className="faint">{p.unchanged ? `skipped: ${set} is live there already` : p.live?.name === set ? `${set} again: the last rollout there did not complete` : `${p.live?.name ?? 'nothing'} → ${set}`}</span>
          </span>
        </label>
      ))}
      {nowhere && (
        <p id={id} className="problem">
          {places.every((p) => p.unchanged) ? `${set} is live in every environment already: there is nothing to roll back.` : 'Choose at least one environment.'}
        </p>
      )}
    </fieldset>
  )
}

/** What would change in each environment, compared with what is live there; environments with the same before are one. */
function Effect({ app, set, only }: { app: App; set: SetFields; only: string[] | null }) {
  const groups = new Map<string, App['environments']>()
  // Of a rollback only where it goes, and not where the set is live already: what is restored there is in what it commits.
  const shown = app.environments.filter((e) => only === null || (only.includes(e.environment.name) && e.live?.id !== set.id))
  for (const e of shown) groups.set(e.live?.id ?? '', [...(groups.get(e.live?.id ?? '') ?? []), e])
  return (
    <div className="effect">
      {[...groups].map(([live, environments]) => {
        const name = environments[0]?.live?.name
        const where = environments.map((e) => displayed(e.environment)).join(', ')
        return (
          <section key={live} aria-label={`What changes in ${where}`}>
            <h3>
              {where}: {name ? (live === set.id ? `${set.name} is live there already` : `${name} → ${set.name}`) : `nothing yet → ${set.name}`}
            </h3>
            {live !== set.id && <Compared beforeId={live} after={set} />}
          </section>
        )
      })}
    </div>
  )
}

function Compared({ beforeId, after }: { beforeId: string; after: SetFields }) {
  const query = useAsk(OneSet, { id: beforeId }, { once: true, enabled: beforeId !== '' })
  if (beforeId === '') return <Changes before={null} after={after} brief />
  if (!query.data?.node || query.data.node.id !== beforeId) return <Loading what="what is live" />
  return <Changes before={query.data.node} after={after} brief />
}
