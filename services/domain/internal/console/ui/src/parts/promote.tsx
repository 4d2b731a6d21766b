// The one dialog that starts a rollout, wherever it is opened from: a new version set, an older one, a way back. It shows what
// would change in each environment, compared with what is live there, before anything does.
import { useId, useState } from 'react'
import { useNavigate } from 'react-router'
import { accepted, ask } from '../api/client'
import { CreateRollout, OneSet, RollbackRollout, Sets, type SetFields, type SetsData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { ability } from '../logic/ability'
import { isOver } from '../logic/waiting'
import { announce } from './announce'
import { Changes } from './changes'
import { Dialog } from './dialog'
import { Field, FormError, sentence } from './form'
import { Icon } from './icon'
import { Loading } from './page'
import { WouldCommit } from './preview'
import { Reason } from './reason'

interface PromoteProps {
  application: string
  /** The set that is chosen at first; otherwise the newest. */
  setId?: string | undefined
  /** The rollout to go back from: it ends, and that of an earlier set begins. */
  rollBackFrom?: { id: string; state: string; versionSet: { name: string } }
  onClose: () => void
}

type App = NonNullable<SetsData['application']>

/** Why nothing can be rolled out now, in the server's words; it refuses by the same rule. */
function hindrance(app: App): string | null {
  const can = ability(app.viewerCan, 'createRollout')
  return can.allowed ? null : sentence(can.reason ?? 'It may not be rolled out now')
}

/** What becomes of the rollout that is under way, where the application's policy does not refuse a newer one. */
function meanwhile(app: App): string | null {
  if (!app.activeRollout) return null
  return app.rolloutPolicy.onNewer === 'SUPERSEDE' ? `${app.activeRollout.id} is parked, and is cancelled for this one.` : `${app.activeRollout.id} is under way: this one begins when that is over.`
}

export function Promote({ application, setId, rollBackFrom, onClose }: PromoteProps) {
  const query = useAsk(Sets, { application, first: 30 })
  const [chosen, setChosen] = useState(setId ?? '')
  const [reason, setReason] = useState('')
  const navigate = useNavigate()
  const id = useId()
  const app = query.data?.application
  const sets = app?.versionSets.nodes ?? []
  // The newest need not be the last one made, nor on the page.
  const listed = sets.find((s) => s.id === chosen) ?? (chosen === '' ? (app?.newestVersionSet ?? undefined) : undefined)
  const older = useAsk(OneSet, { id: chosen }, { once: true, enabled: Boolean(app) && !listed && chosen !== '' })
  const set = listed ?? older.data?.node ?? undefined
  const change = useChange(
    async () => {
      const versionSetId = set?.id ?? chosen
      if (rollBackFrom) return { rollout: accepted((await ask(RollbackRollout, { input: { rolloutId: rollBackFrom.id, versionSetId, reason } })).rollbackRollout).rollout, queued: null }
      return accepted((await ask(CreateRollout, { input: { versionSetId, reason } })).createRollout)
    },
    (payload) => {
      announce(payload.queued ? `${set?.name ?? 'It'} begins when the rollout that is under way is over.` : `${set?.name ?? 'The version set'} is on its way.`)
      onClose()
      if (payload.rollout) void navigate(`/rollouts/${payload.rollout.id}`)
    },
  )
  const blocked = app && !rollBackFrom ? hindrance(app) : null
  const note = app && !rollBackFrom && !blocked ? meanwhile(app) : null
  const verb = rollBackFrom ? 'Roll back' : 'Roll out'
  return (
    <Dialog title={`${verb} ${application}`} submit={verb} busy={change.isPending} disabled={!app || blocked !== null || !set} onSubmit={() => change.mutate(undefined)} onClose={onClose} wide>
      {!app ? (
        <Loading what="version sets" />
      ) : (
        <>
          {rollBackFrom && (
            <p>
              {isOver(rollBackFrom.state) ? '' : `${rollBackFrom.versionSet.name} ends where it stands. `}A rollback is a rollout of an earlier version set: it goes through the same environments and gates.
            </p>
          )}
          {(blocked ?? note) && (
            <p className="banner wait">
              <Icon name="clock" /> {blocked ?? note}
            </p>
          )}
          {sets.length === 0 && <p className="banner wait">There is no version set yet: the first is made once every service has a version.</p>}
          <Field id={id} label="Version set">
            <select id={id} aria-describedby={`${id}-notes`} value={set?.id ?? chosen} onChange={(e) => setChosen(e.target.value)}>
              {!listed && chosen && <option value={chosen}>{set?.name ?? 'An older one'}</option>}
              {listed && !sets.some((s) => s.id === listed.id) && <option value={listed.id}>{listed.name}</option>}
              {sets.map((s) => (
                <option key={s.id} value={s.id}>
                  {s.name} ({s.entries.map((e) => `${e.service.name} ${e.version.name}`).join(', ')})
                </option>
              ))}
            </select>
          </Field>
          {set && <Effect app={app} set={set} />}
          {set && !blocked && <WouldCommit setId={set.id} rollback={Boolean(rollBackFrom)} />}
          <Reason value={reason} onChange={setReason} />
        </>
      )}
      <FormError error={change.error} shown={() => false} />
    </Dialog>
  )
}

/** What would change in each environment, compared with what is live there; environments with the same before are one. */
function Effect({ app, set }: { app: App; set: SetFields }) {
  const groups = new Map<string, App['environments']>()
  for (const e of app.environments) groups.set(e.live?.id ?? '', [...(groups.get(e.live?.id ?? '') ?? []), e])
  return (
    <div className="effect">
      {[...groups].map(([live, environments]) => {
        const name = environments[0]?.live?.name
        const where = environments.map((e) => e.environment.name).join(', ')
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
