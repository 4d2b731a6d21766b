// What an application does automatically about failures and about newer version sets, and the forms that change it.
import { useId, useState } from 'react'
import { accepted, ask } from '../api/client'
import { SetRollbackPolicy, SetRolloutPolicy, type ApplicationPageData, type FailurePolicy, type NewerPolicy } from '../api/generated'
import { useChange } from '../api/hooks'
import { ability } from '../logic/ability'
import { span } from '../logic/time'
import { ActButton } from './act'
import { announce } from './announce'
import { Dialog } from './dialog'
import { Field, findingsUnder, FormError } from './form'

type App = NonNullable<ApplicationPageData['application']>

const failures: Record<FailurePolicy, string> = {
  STOP: 'Stop: what is deployed stays, unless it is rolled back automatically',
  ABORT: 'Abort: what is being deployed returns to the previous version',
  ROLLBACK: 'Roll back at once, whatever the cause',
}
const newer: Record<NewerPolicy, string> = {
  REFUSE: 'Refuse it: one rollout at a time',
  QUEUE: 'Queue it: the latest one starts when the rollout has ended',
  SUPERSEDE: 'Replace a rollout that is paused or waits for approval',
}

/** In the words of its form. */
function rollbackWords({ onFailed, onDegraded, degradedAfterSeconds, inFull }: App['rollbackPolicy']): string[] {
  const words = []
  if (onFailed) words.push('At once when a rollout fails')
  if (onDegraded) words.push(`When a service has been degraded for ${span(degradedAfterSeconds * 1000)}`)
  if (words.length === 0) return ['Never: people roll back']
  words.push(inFull ? 'At once to full traffic, without the gates by weight' : 'Gate by gate, like any rollout')
  return words
}

export function Policies({ app }: { app: App }) {
  const [open, setOpen] = useState<'rollback' | 'rollout' | null>(null)
  const close = () => setOpen(null)
  return (
    <section className="card" aria-labelledby="policies">
      <h2 id="policies">Policies</h2>
      <dl className="policies">
        <div>
          <dt>Automatic rollback</dt>
          <dd>
            {rollbackWords(app.rollbackPolicy).map((words) => (
              <p key={words}>{words}</p>
            ))}
          </dd>
          <dd className="buttons">
            <ActButton ability={ability(app.viewerCan, 'setRollbackPolicy')} onClick={() => setOpen('rollback')} label="Change the rollback policy">
              Change
            </ActButton>
          </dd>
        </div>
        <div>
          <dt>On failure</dt>
          <dd>{failures[app.rolloutPolicy.onFailure]}</dd>
          <dd className="buttons">
            <ActButton ability={ability(app.viewerCan, 'setRolloutPolicy')} onClick={() => setOpen('rollout')} label="Change the rollout policy">
              Change
            </ActButton>
          </dd>
        </div>
        <div>
          <dt>When a newer version set arrives</dt>
          <dd>{newer[app.rolloutPolicy.onNewer]}</dd>
        </div>
      </dl>
      {open === 'rollback' && <RollbackForm app={app} onClose={close} />}
      {open === 'rollout' && <RolloutForm app={app} onClose={close} />}
    </section>
  )
}

function RollbackForm({ app, onClose }: { app: App; onClose: () => void }) {
  const { rollbackPolicy: now } = app
  const [onFailed, setOnFailed] = useState(now.onFailed)
  const [onDegraded, setOnDegraded] = useState(now.onDegraded)
  const [minutes, setMinutes] = useState(String(now.degradedAfterSeconds / 60))
  const [inFull, setInFull] = useState(now.inFull)
  const id = useId()
  const change = useChange(
    async () =>
      accepted((await ask(SetRollbackPolicy, { input: { application: app.name, onFailed, onDegraded, degradedAfterSeconds: Math.round(Number(minutes) * 60), inFull } })).setRollbackPolicy),
    () => {
      announce('Rollback policy changed')
      onClose()
    },
  )
  return (
    <Dialog title={`Rollback policy of ${app.name}`} submit="Save" busy={change.isPending} onSubmit={() => change.mutate(undefined)} onClose={onClose}>
      <p>Applies to what fails or degrades from now on: at most once for each rollout, and never for a rollback.</p>
      <fieldset className="scopes">
        <legend>Automatic rollback</legend>
        <label>
          <input type="checkbox" autoFocus checked={onFailed} onChange={(e) => setOnFailed(e.target.checked)} /> When a rollout fails
        </label>
        <label>
          <input type="checkbox" checked={onDegraded} onChange={(e) => setOnDegraded(e.target.checked)} /> When a service stays degraded, even after the rollout has ended
        </label>
      </fieldset>
      <Field id={`${id}-minutes`} label="Minutes degraded before it rolls back" problem={findingsUnder(change.error, 'degradedAfterSeconds')[0]?.message}>
        <input
          id={`${id}-minutes`}
          aria-describedby={`${id}-minutes-notes`}
          type="number"
          min={0}
          max={10080}
          required
          disabled={!onDegraded}
          value={minutes}
          onChange={(e) => setMinutes(e.target.value)}
        />
      </Field>
      <Field id={`${id}-full`} label="At once to full traffic, without the gates by weight" inline>
        <input id={`${id}-full`} aria-describedby={`${id}-full-notes`} type="checkbox" checked={inFull} onChange={(e) => setInFull(e.target.checked)} />
      </Field>
      <FormError error={change.error} shown={(path) => path[0] === 'degradedAfterSeconds'} />
    </Dialog>
  )
}

function RolloutForm({ app, onClose }: { app: App; onClose: () => void }) {
  const [onFailure, setOnFailure] = useState(app.rolloutPolicy.onFailure)
  const [onNewer, setOnNewer] = useState(app.rolloutPolicy.onNewer)
  const id = useId()
  const change = useChange(
    async () => accepted((await ask(SetRolloutPolicy, { input: { application: app.name, onFailure, onNewer } })).setRolloutPolicy),
    () => {
      announce('Rollout policy changed')
      onClose()
    },
  )
  return (
    <Dialog title={`Rollout policy of ${app.name}`} submit="Save" busy={change.isPending} onSubmit={() => change.mutate(undefined)} onClose={onClose}>
      <Field id={`${id}-failure`} label="On failure" help="The rollback policy applies after it.">
        <select id={`${id}-failure`} aria-describedby={`${id}-failure-notes`} autoFocus value={onFailure} onChange={(e) => setOnFailure(e.target.value as FailurePolicy)}>
          {Object.entries(failures).map(([value, words]) => (
            <option key={value} value={value}>
              {words}
            </option>
          ))}
        </select>
      </Field>
      <Field id={`${id}-newer`} label="When a newer version set arrives during a rollout">
        <select id={`${id}-newer`} aria-describedby={`${id}-newer-notes`} value={onNewer} onChange={(e) => setOnNewer(e.target.value as NewerPolicy)}>
          {Object.entries(newer).map(([value, words]) => (
            <option key={value} value={value}>
              {words}
            </option>
          ))}
        </select>
      </Field>
      <FormError error={change.error} shown={() => false} />
    </Dialog>
  )
}
