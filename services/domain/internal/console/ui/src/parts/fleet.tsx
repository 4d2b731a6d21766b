// The targets of a rollout to an environment of many clusters, folded by wave: counts, a bar, and failed targets first.
import { useState } from 'react'
import { accepted, ask } from '../api/client'
import { PauseWave, ResumeWave, RolloutFleets, RolloutTargets, type RolloutFleetsData } from '../api/generated'
import { useAsk } from '../api/hooks'
import { ability, type Ability } from '../logic/ability'
import { fleetTerms } from '../logic/fleet'
import { isOver } from '../logic/waiting'
import { ActButton } from './act'
import { Confirm } from './confirm'
import { Chip, State } from './state'
import { Ago } from './time'
import { displayed } from '../logic/names'

type Stop = NonNullable<RolloutFleetsData['rollout']>['environments'][number]
type Fleet = NonNullable<Stop['fleet']>
type Wave = Fleet['waves'][number]

/** How many targets of a wave are drawn at first, and how many more with each press. */
const step = 20

/** The fleets of a rollout; nothing if it has none. */
export function Fleets({ id }: { id: string }) {
  const query = useAsk(RolloutFleets, { id }, { live: (d) => !isOver(d.rollout?.state ?? 'COMPLETED'), follows: (touched) => touched.rollouts.has(id) })
  const rollout = query.data?.rollout
  return (
    <>
      {rollout?.environments.map((stop) => stop.fleet && <FleetView key={stop.id} id={id} stop={stop} fleet={stop.fleet} back={rollout.isRollback} can={rollout.viewerCan} over={isOver(rollout.state)} changed={() => query.refetch()} />)}
    </>
  )
}

interface FleetProps {
  id: string
  stop: Stop
  fleet: Fleet
  back: boolean
  can: Ability[]
  over: boolean
  changed: () => Promise<unknown>
}

function FleetView({ id, stop, fleet, back, can, over, changed }: FleetProps) {
  const { name } = stop.environment
  const shown = displayed(stop.environment)
  return (
    <section className="card" aria-label={`Targets in ${shown}`}>
      <h2>
        {shown}: {fleet.healthy} of {fleet.targets} targets healthy
      </h2>
      <Bar part={fleet} what={`Targets in ${shown}`} />
      <p className="faint">{fleetTerms(stop.driverBinding.fleet, back).join(' ')}</p>
      <ul className="plain">
        {fleet.waves.map((wave) => (
          <WaveView key={wave.number} id={id} environment={name} wave={wave} can={can} over={over} changed={changed} />
        ))}
      </ul>
    </section>
  )
}

function Bar({ part, what }: { part: { targets: number; healthy: number; failed: number }; what: string }) {
  return (
    <p className="line">
      <progress max={part.targets} value={part.healthy + part.failed} aria-label={`${what}: ${part.healthy} healthy, ${part.failed} failed, of ${part.targets}`} />
      <span className="faint">
        {part.healthy}/{part.targets}
        {part.failed > 0 && `, ${part.failed} failed`}
      </span>
    </p>
  )
}

interface WaveProps {
  id: string
  environment: string
  wave: Wave
  can: Ability[]
  over: boolean
  changed: () => Promise<unknown>
}

function WaveView({ id, environment, wave, can, over, changed }: WaveProps) {
  const [open, setOpen] = useState(false)
  const [asking, setAsking] = useState(false)
  const verb = wave.paused ? 'Resume' : 'Pause'
  return (
    <li data-wave={wave.number}>
      <div className="line">
        <strong>Wave {wave.number}</strong>
        <WaveChip wave={wave} />
        {wave.startedAt && (
          <span className="faint">
            began <Ago at={wave.startedAt} />
          </span>
        )}
        <span className="buttons push">
          {!over && !wave.finishedAt && (
            <ActButton ability={ability(can, wave.paused ? 'resumeWave' : 'pauseWave')} label={`${verb} wave ${wave.number} of ${environment}`} onClick={() => setAsking(true)}>
              {verb}
            </ActButton>
          )}
          <button type="button" className="quiet" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? 'Hide' : 'Show'} {wave.targets} {wave.targets === 1 ? 'target' : 'targets'}
          </button>
        </span>
      </div>
      <Bar part={wave} what={`Wave ${wave.number}`} />
      {open && <Targets id={id} environment={environment} wave={wave} over={over} />}
      {asking && (
        <Confirm
          title={`${verb} wave ${wave.number} of ${environment}`}
          submit={verb}
          tone="primary"
          reasoned
          done={wave.paused ? `Wave ${wave.number} is resumed.` : `Wave ${wave.number} is paused.`}
          onClose={() => setAsking(false)}
          send={async (reason) => {
            const input = { rolloutId: id, environment, wave: wave.number, reason }
            if (wave.paused) accepted((await ask(ResumeWave, { input })).resumeWave)
            else accepted((await ask(PauseWave, { input })).pauseWave)
            await changed()
          }}
        >
          <p>{wave.paused ? 'It begins if everything else allows it.' : 'It does not begin, and no later one does. Targets that are being deployed continue.'}</p>
        </Confirm>
      )}
    </li>
  )
}

function WaveChip({ wave }: { wave: Wave }) {
  if (wave.paused) return <Chip tone="wait" icon="paused" word="Paused" />
  if (!wave.startedAt) return <State state="PENDING" />
  if (!wave.finishedAt) return <State state="DEPLOYING" />
  return wave.failed > 0 ? <Chip tone="bad" icon="failed" word={`${wave.failed} failed`} /> : <State state="HEALTHY" />
}

function Targets({ id, environment, wave, over }: { id: string; environment: string; wave: Wave; over: boolean }) {
  const [first, setFirst] = useState(step)
  const query = useAsk(RolloutTargets, { id, environment, wave: wave.number, first }, { live: () => !over && !wave.finishedAt })
  const page = query.data?.rolloutTargets
  if (!page) return <p className="faint">Loading the targets…</p>
  const left = page.totalCount - page.nodes.length
  return (
    <>
      <ul className="plain">
        {page.nodes.map((t) => (
          <li key={t.agentNumber} className="line">
            <State state={t.state} />
            <span>{t.name}</span>
            {t.finishedAt && (
              <span className="faint">
                <Ago at={t.finishedAt} />
              </span>
            )}
            {t.reason && <span dir="auto">{t.reason}</span>}
          </li>
        ))}
      </ul>
      {left > 0 && (
        <button type="button" className="quiet" onClick={() => setFirst(Math.min(page.totalCount, first + step * 4, 100))} disabled={first >= 100}>
          {first >= 100 ? `${left} more: lockstep rollout targets lists them` : `Show more of ${left}`}
        </button>
      )}
    </>
  )
}
