// A rollout: why it waits, where each service stands, and who did what.
import { useEffect, useRef, useState } from 'react'
import { Link, useParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { OneSet, StopAutomaticRollback, type RolloutPageData, type WaitKind } from '../api/generated'
import { useAsk, useRollout, type LiveRollout } from '../api/hooks'
import { ability } from '../logic/ability'
import { course } from '../logic/gates'
import { givenInputs } from '../logic/inputs'
import { breach } from '../logic/passages'
import { conditions, isOver, names } from '../logic/waiting'
import { ActButton } from '../parts/act'
import { announce } from '../parts/announce'
import { CausesOfRollout } from '../parts/causes'
import { ChainsOfRollout } from '../parts/chains'
import { Changes } from '../parts/changes'
import { Confirm } from '../parts/confirm'
import { At, Countdown } from '../parts/countdown'
import { Diffs } from '../parts/diff'
import { GateButtons, GateRule, RolloutActs } from '../parts/decide'
import { Fleets } from '../parts/fleet'
import { useFirst } from '../parts/fold'
import { sentence } from '../parts/form'
import { BypassDialog } from '../parts/freeze'
import { GlassBanner } from '../parts/glass'
import { Icon } from '../parts/icon'
import { Record } from '../parts/journal'
import { LaneView, StopView } from '../parts/lane'
import { NotThere, Page, Waiting } from '../parts/page'
import { Calls } from '../parts/calls'
import { Checks } from '../parts/checks'
import { Deadlines } from '../parts/deadlines'
import { Passages } from '../parts/passages'
import { Promote } from '../parts/promote'
import { Chip, RolloutChip, stateWord } from '../parts/state'
import { Ago, Due } from '../parts/time'
import { displayed } from '../logic/names'

type Rollout = NonNullable<RolloutPageData['rollout']>

export function RolloutDetail() {
  const { id = '' } = useParams()
  const query = useRollout(id)
  if (query.data === undefined) {
    return (
      <Page title="Rollout">
        <Waiting query={query} what="rollout" />
      </Page>
    )
  }
  if (query.data === null) return <NotThere what="rollout" to="/rollouts" list="All rollouts" />
  return <Shown key={id} live={query.data} />
}

function Shown({ live }: { live: LiveRollout }) {
  const { rollout, journal } = live
  const breached = breach(rollout, journal) !== null
  const what = `${rollout.versionSet.name} of ${rollout.application.name}`
  useSayWhatMoves(rollout, what)
  return (
    <Page
      title={`${rollout.application.name}: ${rollout.versionSet.name}`}
      name={`${rollout.versionSet.name} of ${rollout.application.name}`}
      above={
        <>
          <Link to={`/applications/${rollout.application.name}`}>{rollout.application.name}</Link> › <Link to={`/rollouts?application=${rollout.application.name}`}>rollouts</Link> › {rollout.id}
        </>
      }
      lead={
        <p className="line">
          <RolloutChip state={rollout.status} gates={rollout.openGates.length} />
          {rollout.pauseRequested && rollout.state !== 'PAUSED' && <Chip tone="wait" icon="paused" word="Pauses at the next gate" />}
          {rollout.breakGlass && <Chip tone="bad" icon="degraded" word="Break-glass" />}
          {breached && <Chip tone="bad" icon="degraded" word="Breach" />}
          {rollout.isRollback && !rollout.rollbackOf && <Chip tone="quiet" icon="back" word="Rollback" />}
          {rollout.rollbackOf && (
            <span>
              <Chip tone="quiet" icon="back" word="Rollback" /> of{' '}
              <Link to={`/rollouts/${rollout.rollbackOf.id}`}>
                {rollout.rollbackOf.versionSet.name} ({rollout.rollbackOf.id})
              </Link>
            </span>
          )}
          {rollout.rolledBackBy && (
            <span>
              <Chip tone="quiet" icon="back" word={rollout.rolledBackBy.status === 'COMPLETED' ? 'Rolled back' : 'Rollback started'} /> by{' '}
              <Link to={`/rollouts/${rollout.rolledBackBy.id}`}>
                {rollout.rolledBackBy.versionSet.name} ({rollout.rolledBackBy.id})
              </Link>
            </span>
          )}
          <span className="faint">
            Created <Ago at={rollout.createdAt} />
            {rollout.finishedAt && (
              <>
                {' '}
                · ended <Ago at={rollout.finishedAt} />
              </>
            )}{' '}
            · pipeline v{rollout.flowDefinition.version}
            {rollout.strategy && <> · {rollout.strategy === 'QUICK' ? 'quick sync' : 'stops at weights'}</>}
          </span>
        </p>
      }
      beside={<Actions rollout={rollout} what={what} />}
    >
      <div className="beside">
        <div className="stack">
          {rollout.breakGlass && <GlassBanner glass={rollout.breakGlass} />}
          <Automatic rollout={rollout} what={what} />
          <Why live={live} what={what} />
          {rollout.strategyReason && (
            <section className="card" aria-labelledby="strategy">
              <h2 id="strategy">{rollout.strategy === 'QUICK' ? 'Quick sync' : 'Pipeline'}</h2>
              <p dir="auto">
                {rollout.strategy === 'QUICK' ? 'It stops at no weight; what these require is required before it enters their environment.' : 'It stops at every weight.'} Why: {rollout.strategyReason}.
              </p>
            </section>
          )}
          {givenInputs(rollout.inputs).length > 0 && (
            <section className="card" aria-labelledby="inputs">
              <h2 id="inputs">Inputs</h2>
              <dl className="config">
                {givenInputs(rollout.inputs).map(([name, value]) => (
                  <div key={name}>
                    <dt className="mono">{name}</dt>
                    <dd dir="auto">{value}</dd>
                  </div>
                ))}
              </dl>
            </section>
          )}
          <ol className="course" aria-label="The course of this rollout">
            {course(rollout, journal).map((part) =>
              part.kind === 'lane' ? (
                <LaneView key={part.lane.place.id} lane={part.lane} target={rollout.versionSet.name} brief={rollout.environments.length > 6} />
              ) : (
                <StopView key={part.key} stop={part.stop} over={isOver(rollout.state)} target={rollout.versionSet.name} />
              ),
            )}
          </ol>
          <Fleets id={rollout.id} />
          <WhatChanges rollout={rollout} />
          <ChainsOfRollout id={rollout.id} />
          <CausesOfRollout causes={rollout.causes} own={rollout.id} />
          <Deadlines deadlines={rollout.deadlines} />
          <Calls calls={rollout.callRequests} />
          <Checks rolloutId={rollout.id} checks={rollout.checks} />
          <Passages live={live} />
        </div>
        <Record rollout={rollout} rows={journal} />
      </div>
    </Page>
  )
}

/** Says changes of state to those who do not see them. */
function useSayWhatMoves(rollout: Rollout, what: string) {
  const said = useRef('')
  const now = rollout.openGates.length > 0 ? `waits for approval of ${rollout.openGates.map((g) => g.gateId).join(', ')}` : stateWord(rollout.status)
  useEffect(() => {
    if (said.current !== '' && said.current !== now) announce(`${what}: ${now}.`)
    said.current = now
  }, [now, what])
}

function Actions({ rollout, what }: { rollout: Rollout; what: string }) {
  const [promote, setPromote] = useState<'again' | 'back' | null>(null)
  // What the server goes back to if no set is named: what was live before, in the last environment that had anything. Never its own set.
  const before = rollout.environments.findLast((e) => e.previousVersionSet && e.previousVersionSet.id !== rollout.versionSet.id)?.previousVersionSet
  return (
    <>
      <RolloutActs rollout={rollout} what={what} rollBack={() => setPromote('back')} />
      {isOver(rollout.state) && (
        <button type="button" onClick={() => setPromote('again')}>
          Roll out {rollout.versionSet.name} again
        </button>
      )}
      {promote === 'again' && <Promote application={rollout.application.name} setId={rollout.versionSet.id} onClose={() => setPromote(null)} />}
      {promote === 'back' && <Promote application={rollout.application.name} setId={before?.id} rollBackFrom={rollout} onClose={() => setPromote(null)} />}
    </>
  )
}

function Why({ live, what }: { live: LiveRollout; what: string }) {
  const { rollout, journal } = live
  const [bypassing, setBypassing] = useState(false)
  if (isOver(rollout.state)) {
    // The row that ended it: others may follow, such as that its automatic rollback was stopped.
    const end = journal.findLast((r) => r.subject === rollout.id && r.fromState !== r.toState && r.toState.toUpperCase() === rollout.state)
    if (rollout.state === 'COMPLETED' || !end?.reason) return null
    const beyond = breach(rollout, journal)
    return (
      <section className={`card why ${rollout.state === 'FAILED' ? 'bad' : ''}`} aria-label="Why it ended">
        <h2>{rollout.state === 'FAILED' ? 'Why it failed' : 'Why it was cancelled'}</h2>
        <p dir="auto">{beyond ? sentence(beyond.text) : end.reason}</p>
        {beyond && (
          <p>
            <strong>This is a breach:</strong> its driver’s program continued without the passage{beyond.passage && <> “{beyond.passage}”</>}. Nothing was applied of what it reported from there; its workflow is stopped, and it may change nothing any more.
          </p>
        )}
        {rollout.state === 'FAILED' && <p className="faint">{afterFailure(rollout)}</p>}
      </section>
    )
  }
  const all = conditions(rollout)
  return (
    <section className={rollout.status === 'ABORTED' || rollout.status === 'ABORTING' ? 'card why bad' : 'card why'} aria-labelledby="why">
      <h2 id="why">Why is it waiting?</h2>
      {all.length === 0 && <p className="faint">It is not waiting: the next step is starting.</p>}
      <ul>
        {all.map((c) => (
          <li key={c.key} className={c.gate ? 'gate' : undefined}>
            <Icon name={c.kind === 'PAUSE' && rollout.status !== 'PAUSED' ? 'back' : kindIcons[c.kind]} />
            <div>
              <p>
                <strong>{c.title}</strong>
                {c.since && (
                  <span className="faint">
                    , since <Ago at={c.since} />
                  </span>
                )}
                {c.until && !c.gate && c.kind !== 'SOAK' && (
                  <span className="faint">
                    , until <Due at={c.until} />
                  </span>
                )}
              </p>
              {(c.gate ? c.gate.reason : c.detail) && <p dir="auto">{sentence(c.gate ? c.gate.reason : c.detail)}</p>}
              {c.kind === 'SOAK' && c.until && <Countdown since={c.since} until={c.until} label={c.title} />}
              {c.joint && <p>{c.joint}</p>}
              {c.gate && <GateRule gate={c.gate} />}
              {c.stuck ? (
                <p>
                  <Chip tone="bad" icon="degraded" word="Nobody can answer it" /> Add members who may approve, or cancel the rollout.
                </p>
              ) : (
                c.approvers.length > 0 && (
                  <p className="faint">
                    Can be approved by <bdi>{names(c.approvers)}</bdi>.
                  </p>
                )
              )}
              {c.link && (
                <p>
                  <a href={c.link} rel="noreferrer noopener" target="_blank">
                    Where it was reported from
                  </a>
                </p>
              )}
              {!c.gate && c.kind !== 'SOAK' && <p className="faint">Resolved by {c.resolver}.</p>}
            </div>
            {c.gate && <GateButtons rolloutId={rollout.id} gate={c.gate} what={what} glass={ability(rollout.viewerCan, 'breakGlass')} />}
            {c.kind === 'FREEZE' && (
              <ActButton ability={ability(rollout.viewerCan, 'bypassFreeze')} onClick={() => setBypassing(true)}>
                Bypass
              </ActButton>
            )}
          </li>
        ))}
      </ul>
      {bypassing && <BypassDialog rolloutId={rollout.id} what={what} onClose={() => setBypassing(false)} />}
    </section>
  )
}

/** What has become of what a failed rollout deployed. */
function afterFailure(rollout: Rollout) {
  const back = rollout.rolledBackBy
  if (!back) {
    return rollout.automaticRollback?.state === 'DUE'
      ? 'What is deployed stays as it is until it is rolled back automatically.'
      : 'What is deployed stays as it is. Roll back, retry, or roll out a version set that fixes it.'
  }
  const link = (
    <Link to={`/rollouts/${back.id}`}>
      {back.versionSet.name} ({back.id})
    </Link>
  )
  if (back.status === 'COMPLETED') return <>It has been rolled back to {link}.</>
  if (isOver(back.status)) return <>The rollback to {link} is {stateWord(back.status)}. Look there for what is deployed now.</>
  return <>It is being rolled back to {link}, which is {stateWord(back.status)}.</>
}

/** What the application's policy is about to do to it, with a way to stop that; or what came of it. */
function Automatic({ rollout, what }: { rollout: Rollout; what: string }) {
  const [open, setOpen] = useState(false)
  const due = rollout.automaticRollback
  if (!due || due.state === 'STARTED') return null
  if (due.state === 'DROPPED' || !due.dueAt) {
    return (
      <section className="card" aria-label="Automatic rollback">
        <p>
          <Chip tone="quiet" icon="cancelled" word="No automatic rollback" /> <span className="faint">{due.outcome && sentence(due.outcome)}</span>
        </p>
      </section>
    )
  }
  // A failure counts from the end of the rollout, a degradation for as long as the policy has it.
  const since = due.cause === 'FAILED' ? rollout.finishedAt : new Date(Date.parse(due.dueAt) - rollout.application.rollbackPolicy.degradedAfterSeconds * 1000).toISOString()
  return (
    <section className="card why bad automatic" aria-label="Automatic rollback">
      <Countdown since={since} until={due.dueAt} label="Time until the automatic rollback">
        <Icon name="back" />
        <strong>
          Rolls back automatically at <At at={due.dueAt} />
        </strong>
        <ActButton ability={ability(rollout.viewerCan, 'stopAutomaticRollback')} onClick={() => setOpen(true)} label="Stop the automatic rollback">
          Stop
        </ActButton>
      </Countdown>
      <p className="faint">{sentence(due.why)}</p>
      {open && (
        <Confirm
          title={`Stop the automatic rollback of ${what}`}
          submit="Stop it"
          tone="danger"
          reasoned="required"
          done={`${what} is not rolled back automatically.`}
          onClose={() => setOpen(false)}
          send={async (reason) => accepted((await ask(StopAutomaticRollback, { input: { rolloutId: rollout.id, reason } })).stopAutomaticRollback)}
        >
          <p>What is deployed stays as it is until someone acts. It is not scheduled again for this rollout.</p>
        </Confirm>
      )}
    </section>
  )
}

const kindIcons: Record<WaitKind, string> = { HAND_OVER: 'pending', APPROVAL: 'gate', PAUSE: 'paused', SOAK: 'clock', HEALTH: 'moving', ENVIRONMENT: 'environment', AGENT: 'offline', FREEZE: 'paused', VETO: 'failed', PIN: 'gate', CHECK: 'clock', POLICY: 'gate' }

/** The versions that this rollout changes, environment by environment. */
function WhatChanges({ rollout }: { rollout: Rollout }) {
  const previous = [...new Map(rollout.environments.flatMap((e) => (e.previousVersionSet ? [[e.previousVersionSet.id, e.previousVersionSet] as const] : []))).values()]
  return (
    <section className="card" aria-labelledby="changes">
      <h2 id="changes">What it changes</h2>
      {previous.length === 0 && <Changes before={null} after={rollout.versionSet} />}
      {previous.map((p) => (
        <Since key={p.id} id={p.id} rollout={rollout} several={previous.length > 1} />
      ))}
      {rollout.environments.map((e) => (
        <Committed key={e.id} place={e} />
      ))}
    </section>
  )
}

/** What exactly was committed to an environment, service by service (E46); nothing before that. */
function Committed({ place }: { place: Rollout['environments'][number] }) {
  const [seen, setSeen] = useState(false)
  const committed = place.deployments.flatMap((d) => (d.snapshot ? [{ ...d.snapshot, service: displayed(d.service) }] : []))
  if (committed.length === 0) return null
  return (
    <details className="committed" onToggle={(e) => e.currentTarget.open && setSeen(true)}>
      <summary>
        What was {committed.some((c) => c.commitSha) ? 'committed' : 'submitted'} for {displayed(place.environment)}
      </summary>
      {seen && <CommittedParts committed={committed} place={place} />}
    </details>
  )
}

type Snapshot = NonNullable<Rollout['environments'][number]['deployments'][number]['snapshot']> & { service: string }

function CommittedParts({ committed, place }: { committed: Snapshot[]; place: Rollout['environments'][number] }) {
  const [shown, more] = useFirst(committed, 20, 'services')
  return (
    <>
      {committed.some((c) => c.commitSha) && <Diffs changes={committed.flatMap((c) => c.changes)} nothing="Everything was in the repository already: this rollout changed nothing." />}
      <dl className="config">
        {shown.map((c) => (
          <div key={c.service}>
            <dt>{c.service}</dt>
            <dd>
              {c.commitSha && (
                <p>
                  commit <code>{c.commitSha}</code>
                </p>
              )}
              <p>
                manifest <code>{c.manifestDigest}</code>
              </p>
              <p>
                by driver <code>{c.driverDigest}</code>
              </p>
              {c.earlier.map((before) => (
                <p key={before.committedAt + before.commitSha}>
                  an attempt before, <Ago at={before.committedAt} />: {before.commitSha ? 'commit' : 'manifest'} <code>{before.commitSha || before.manifestDigest}</code>
                </p>
              ))}
              <pre tabIndex={0} aria-label={`Parameters of ${c.service} in ${displayed(place.environment)}`}>{JSON.stringify(c.parameters, null, 2)}</pre>
            </dd>
          </div>
        ))}
      </dl>
      {more}
    </>
  )
}

function Since({ id, rollout, several }: { id: string; rollout: Rollout; several: boolean }) {
  const query = useAsk(OneSet, { id }, { once: true })
  const before = query.data?.node
  if (!before) return <Waiting query={query} what="version set before" />
  const where = rollout.environments.filter((e) => e.previousVersionSet?.id === id).map((e) => displayed(e.environment))
  return (
    <>
      {several && <h3>In {where.join(' and ')}</h3>}
      <Changes before={before} after={rollout.versionSet} />
    </>
  )
}
