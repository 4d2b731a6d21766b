// Checks: those of a rollout with what they have come to, and those that an environment requires of every rollout.
import { useState } from 'react'
import { accepted, ask } from '../api/client'
import { ChecksSchema, DecideCheck, SetEnvironmentChecks, type CheckPhase, type EnvironmentPageData, type RolloutPageData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { isRecord, prune, validate, withDefaults, type Json, type Schema } from '../form/schema'
import { SchemaForm } from '../form/SchemaForm'
import { ability } from '../logic/ability'
import { ActButton } from './act'
import { announce } from './announce'
import { Confirm } from './confirm'
import { Dialog } from './dialog'
import { useFirst } from './fold'
import { findingsUnder, FormError, sentence } from './form'
import { Waiting } from './page'
import { Chip } from './state'
import { Ago } from './time'
import { displayed } from '../logic/names'
import { Named } from './named'

type Environment = NonNullable<EnvironmentPageData['environment']>
type RolloutCheck = NonNullable<RolloutPageData['rollout']>['checks'][number]

export const phases: Record<CheckPhase, { word: string; tone: 'good' | 'bad' | 'wait'; icon: 'completed' | 'failed' | 'clock' }> = {
  SUCCESS: { word: 'Green', tone: 'good', icon: 'completed' },
  FAILURE: { word: 'Red', tone: 'bad', icon: 'failed' },
  PENDING: { word: 'Pending', tone: 'wait', icon: 'clock' },
}

/** So many are drawn until the others are requested. */
const most = 20

export function Checks({ rolloutId, checks }: { rolloutId: string; checks: RolloutCheck[] }) {
  const [shown, more] = useFirst(checks, most, 'checks')
  if (checks.length === 0) return null
  return (
    <section className="card" aria-labelledby="checks">
      <h2 id="checks">Checks</h2>
      <p className="faint">In the order of promotion. Those about what is in an environment guard the entrance to the next one.</p>
      <div className="scroll" tabIndex={0} role="region" aria-labelledby="checks">
        <table className="list">
          <thead>
            <tr>
              <th scope="col">Check</th>
              <th scope="col">Environment</th>
              <th scope="col">Phase</th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((c) => (
              <tr key={`${c.environment.id}/${c.target}/${c.key}/${c.own}`} data-check={c.key}>
                <th scope="row">
                  <span className="wrap">{c.key}</span>
                  <div className="faint">{c.own ? 'required by the environment' : 'of the pipeline'}</div>
                </th>
                <td>
                  {c.target === 'PROPOSED' ? 'before ' : 'in '}
                  <Named of={c.environment} />
                </td>
                <td>
                  <Chip {...phases[c.phase]} />
                  {c.since && (
                    <div className="faint">
                      <Ago at={c.since} />
                    </div>
                  )}
                </td>
                <td dir="auto">
                  {sentence(c.detail)}{' '}
                  {c.link && (
                    <a href={c.link} target="_blank" rel="noopener noreferrer">
                      Details
                    </a>
                  )}
                  {c.asks && c.phase === 'PENDING' && <CheckButtons rolloutId={rolloutId} check={c} />}
                  {c.reports.length > 1 && (
                    <ul className="plain faint">
                      {c.reports.map((r) => (
                        <li key={r.reporter}>
                          {r.reporter}: {phases[r.phase].word.toLowerCase()} <Ago at={r.reportedAt} />
                        </li>
                      ))}
                    </ul>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {more}
    </section>
  )
}

/** What a person answers a check whose program cannot decide. */
function CheckButtons({ rolloutId, check }: { rolloutId: string; check: RolloutCheck }) {
  const [open, setOpen] = useState<'SUCCESS' | 'FAILURE' | null>(null)
  const pass = open === 'SUCCESS'
  const name = `${check.key} of ${displayed(check.environment)}`
  return (
    <span className="buttons">
      <button type="button" className="primary" onClick={() => setOpen('SUCCESS')} aria-label={`Let ${name} pass`}>
        Let it pass
      </button>
      <button type="button" onClick={() => setOpen('FAILURE')} aria-label={`Fail ${name}`}>
        Fail it
      </button>
      {open && (
        <Confirm
          title={pass ? `Let “${check.key}” pass` : `Fail “${check.key}”`}
          submit={pass ? 'Let it pass' : 'Fail the check'}
          tone={pass ? 'primary' : 'danger'}
          reasoned="required"
          done={pass ? `${name} passes.` : `${name} fails.`}
          onClose={() => setOpen(null)}
          send={async (reason) =>
            accepted((await ask(DecideCheck, { input: { rolloutId, environment: check.environment.id, key: check.key, phase: open, reason } })).decideCheck)
          }
        >
          <p>{pass ? 'The check is green for this rollout, until its program measures again.' : 'The passage that waits for it stays closed.'}</p>
        </Confirm>
      )}
    </span>
  )
}

/** The keys that an environment requires of one target. */
function keysOf(checks: unknown, target: 'active' | 'proposed'): string[] {
  const all = isRecord(checks) ? checks[target] : undefined
  return Array.isArray(all) ? all.map((one) => (isRecord(one) ? String(one.key ?? one.kind ?? '') : '')) : []
}

export function RequiredChecks({ environment }: { environment: Environment }) {
  const { checks, name } = environment
  const [open, setOpen] = useState<'change' | 'drop' | null>(null)
  const can = ability(environment.viewerCan, 'setEnvironmentChecks')
  const before = keysOf(checks, 'proposed')
  const after = keysOf(checks, 'active')
  const drop = async () => accepted((await ask(SetEnvironmentChecks, { input: { environmentId: environment.id, checks: null } })).setEnvironmentChecks)
  return (
    <section className="card" aria-labelledby="required-checks">
      <h2 id="required-checks">Required checks</h2>
      {!checks && <p className="faint">None beside those of pipelines.</p>}
      {before.length > 0 && <p>Green before a rollout enters: {before.join(', ')}.</p>}
      {after.length > 0 && <p>Green before a rollout leaves for the next environment: {after.join(', ')}.</p>}
      <p className="buttons">
        <ActButton ability={can} onClick={() => setOpen('change')}>
          {checks ? 'Change the checks' : 'Require checks'}
        </ActButton>
        {!!checks && (
          <ActButton ability={can} onClick={() => setOpen('drop')}>
            Require no checks
          </ActButton>
        )}
      </p>
      {open === 'change' && <ChecksForm environment={environment} onClose={() => setOpen(null)} />}
      {open === 'drop' && (
        <Confirm title={`Require no checks of ${name}`} submit="Require no checks" done="Required checks removed" send={drop} onClose={() => setOpen(null)}>
          <p>New rollouts need the checks of their pipelines. Active rollouts keep the checks that they were created with.</p>
        </Confirm>
      )}
    </section>
  )
}

export function ChecksForm({ environment, onClose }: { environment: Environment; onClose: () => void }) {
  const query = useAsk(ChecksSchema, {}, { once: true })
  const [checks, setChecks] = useState<Json>(isRecord(environment.checks) ? environment.checks : {})
  const [tried, setTried] = useState(false)
  const schema = (query.data?.checksSchema ?? true) as Schema
  const value = prune(schema, schema, withDefaults(schema, schema, checks)) as Json
  const local = validate(schema, schema, value)
  const change = useChange(
    async () => accepted((await ask(SetEnvironmentChecks, { input: { environmentId: environment.id, checks: value } })).setEnvironmentChecks),
    () => {
      announce('Required checks saved')
      onClose()
    },
  )
  const findings = [...(tried ? local : []), ...findingsUnder(change.error, 'checks')].map((f) => ({ ...f, message: sentence(f.message) }))
  const submit = () => {
    setTried(true)
    if (local.length === 0) change.mutate(undefined)
  }
  return (
    <Dialog title={`Checks of ${displayed(environment)}`} submit="Save" wide busy={change.isPending} disabled={!query.data} onSubmit={submit} onClose={onClose}>
      <p>Every new rollout needs them, beside the checks of its pipeline. No pipeline can weaken them.</p>
      {query.data ? <SchemaForm context={{ root: schema, driver: 'checks', findings, agents: [] }} value={value} onChange={setChecks} /> : <Waiting query={query} what="form" />}
      <FormError error={change.error} shown={(path) => path[0] === 'checks'} />
    </Dialog>
  )
}
