// The one dialog that starts a rollout, wherever it is opened from: a new version set, an older one, a rollback. It shows what
// would change before anything does.
import { useId, useState } from 'react'
import { useNavigate } from 'react-router'
import { accepted, ask } from '../api/client'
import { CreateRollout, Sets, type SetsData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { cell } from '../logic/where'
import { announce } from './announce'
import { Changes } from './changes'
import { Reason } from './decide'
import { Dialog } from './dialog'
import { Field, FormError } from './form'
import { Loading } from './page'

interface PromoteProps {
  application: string
  /** The set that is chosen at first; otherwise the newest. */
  setId?: string
  rollback?: boolean
  onClose: () => void
}

type App = NonNullable<SetsData['application']>

/** Why nothing can be rolled out now, as far as can be seen from here; the server has the last word. */
function hindrance(app: App): string | null {
  if (app.activeRollout) return 'A rollout of this application is under way; there is one at a time.'
  if (!app.flowDefinition) return 'This application has no pipeline yet.'
  const late = app.environments.find((e) => e.readiness !== 'READY')
  if (late) return `It is not ready in ${late.environment.name}: ${late.readinessReason || 'being set up'}.`
  return null
}

export function Promote({ application, setId, rollback, onClose }: PromoteProps) {
  const query = useAsk(Sets, { application, first: 30 })
  const [chosen, setChosen] = useState(setId ?? '')
  const [reason, setReason] = useState('')
  const navigate = useNavigate()
  const id = useId()
  const app = query.data?.application
  const sets = app?.versionSets.nodes ?? []
  const set = sets.find((s) => s.id === chosen) ?? (chosen === '' ? sets[0] : undefined)
  const change = useChange(
    async () => accepted((await ask(CreateRollout, { input: { versionSetId: set?.id ?? chosen, reason } })).createRollout),
    (payload) => {
      announce(`${set?.name ?? 'The version set'} is on its way.`)
      onClose()
      if (payload.rollout) void navigate(`/rollouts/${payload.rollout.id}`)
    },
  )
  const blocked = app ? hindrance(app) : null
  return (
    <Dialog
      title={rollback ? `Roll back ${application}` : `Roll out ${application}`}
      submit={rollback ? 'Roll back' : 'Roll out'}
      busy={change.isPending}
      disabled={!app || blocked !== null || (!set && chosen === '')}
      onSubmit={() => change.mutate(undefined)}
      onClose={onClose}
      wide
    >
      {!app ? (
        <Loading what="version sets" />
      ) : (
        <>
          {rollback && <p>A rollback is a rollout of an earlier version set: it goes through the same environments and gates.</p>}
          {blocked && <p className="banner wait">{blocked}</p>}
          {sets.length === 0 && <p className="banner wait">There is no version set yet: the first is made once every service has a version.</p>}
          <Field id={id} label="Version set">
            <select id={id} aria-describedby={`${id}-notes`} value={set?.id ?? chosen} onChange={(e) => setChosen(e.target.value)}>
              {!set && chosen && <option value={chosen}>An older one</option>}
              {sets.map((s) => (
                <option key={s.id} value={s.id}>
                  {s.name} ({s.entries.map((e) => `${e.service.name} ${e.version.name}`).join(', ')})
                </option>
              ))}
            </select>
          </Field>
          {set && <Effect app={app} set={set} />}
          <Reason value={reason} onChange={setReason} />
        </>
      )}
      <FormError error={change.error} shown={() => false} />
    </Dialog>
  )
}

/** What would change in each environment, compared with what is live there. */
function Effect({ app, set }: { app: App; set: App['versionSets']['nodes'][number] }) {
  return (
    <div className="effect">
      {app.environments.map((e) => {
        const { live } = cell(app.rollouts.nodes, e.environment.name)
        const before = live ? (app.versionSets.nodes.find((s) => s.id === live.id) ?? null) : null
        return (
          <section key={e.id}>
            <h3>
              {e.environment.name}: {live ? (live.id === set.id ? `has ${set.name} already` : `${live.name} → ${set.name}`) : `nothing yet → ${set.name}`}
            </h3>
            {(before || !live) && live?.id !== set.id && <Changes before={before} after={set} brief />}
          </section>
        )
      })}
    </div>
  )
}
