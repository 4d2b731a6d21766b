// Freezes: a banner on every page while one is in force, with the time left and a way to end it; a button that starts one; and pins.
import { useState } from 'react'
import { accepted, ask } from '../api/client'
import { BypassFreeze, EndFreeze, Freezes, PinEnvironment, StartFreeze, UnpinEnvironment, type FreezesData, type Permission } from '../api/generated'
import { useAsk } from '../api/hooks'
import { lines, parseLines, type Values } from '../logic/details'
import { Confirm } from './confirm'
import { Countdown } from './countdown'
import { Icon } from './icon'
import { Ago } from './time'
import { displayed } from '../logic/names'

type Freeze = FreezesData['freezes']['nodes'][number]

/** What a freeze concerns, in a few words. */
export function scopeWords(f: Pick<Freeze, 'tiers' | 'environments' | 'applications' | 'environmentLabels' | 'applicationLabels' | 'rollbacks'>): string {
  const labelled = (what: string, labels: unknown) => (labels ? [`${what} with ${lines(labels as Values).replaceAll('\n', ', ')}`] : [])
  const parts = [
    f.tiers.map((t) => t.toLowerCase()),
    f.environments.map(displayed),
    f.applications.map((a) => a.name),
    labelled('environments', f.environmentLabels),
    labelled('applications', f.applicationLabels),
  ]
    .filter((p) => p.length > 0)
    .map((p) => p.join(', '))
  return `${parts.length > 0 ? parts.join('; ') : 'everything'}${f.rollbacks ? ', with rollbacks' : ''}`
}

/** On every page while rollouts are frozen. */
export function FreezeBanner({ permissions }: { permissions: Permission[] }) {
  const query = useAsk(Freezes, {})
  const [ending, setEnding] = useState<Freeze | null>(null)
  const all = query.data?.freezes.nodes.filter((f) => f.inForce) ?? []
  if (all.length === 0) return null
  return (
    <>
      {all.map((f) => (
        <section key={f.id} className="glass" aria-label={`Freeze of ${scopeWords(f)}`}>
          <Icon name="paused" />
          <div>
            <Countdown since={f.startsAt} until={f.endsAt} label="Time until the freeze ends">
              <strong>
                Frozen{f.incident && <> for <bdi>{f.incident}</bdi></>}: <bdi>{scopeWords(f)}</bdi>
              </strong>
              {permissions.includes('FREEZE') && (
                <button type="button" onClick={() => setEnding(f)}>
                  End
                </button>
              )}
            </Countdown>
            <p dir="auto">{f.reason}</p>
            <p className="faint">
              By <bdi>{f.author}</bdi>, since <Ago at={f.startsAt} />
              {f.stoppedRollouts > 0 && `; ${f.stoppedRollouts} ${f.stoppedRollouts === 1 ? 'rollout waits' : 'rollouts wait'} for its end`}.
            </p>
          </div>
        </section>
      ))}
      {ending && (
        <Confirm
          title={`End ${ending.id}`}
          submit="End the freeze"
          reasoned
          done="The freeze has ended."
          onClose={() => setEnding(null)}
          send={async (reason) => {
            accepted((await ask(EndFreeze, { input: { freezeId: ending.id, reason } })).endFreeze)
            await query.refetch()
          }}
        >
          <p>Rollouts that it has stopped continue at once.</p>
        </Confirm>
      )}
    </>
  )
}

/** Labels as people write them, such as tier=critical, team=web; null for none. Something else is an error before anything is frozen. */
export function selector(text: string): Values | null {
  if (text.trim() === '') return null
  const parts = text.replaceAll(',', '\n')
  const { values, wrong } = parseLines(parts)
  if (wrong !== undefined || Object.keys(values).length === 0) throw new Error(`“${wrong ?? text}” is no label; expected one such as tier=critical.`)
  const keys = parts.split('\n').map((l) => (l.split('=')[0] ?? '').trim()).filter(Boolean)
  const twice = keys.find((key, i) => keys.indexOf(key) !== i)
  if (twice !== undefined) throw new Error(`“${twice}” appears twice; expected each key once: all labels have to match, so start one freeze for each value.`)
  return values
}

const lengths = [1, 4, 8, 24, 72]

/** One button that freezes a scope; without one, all of the organization. */
export function FreezeButton({ scope, name }: { scope: { environments?: string[]; applications?: string[] }; name: string }) {
  const [open, setOpen] = useState(false)
  const [hours, setHours] = useState(4)
  const [rollbacks, setRollbacks] = useState(false)
  const [incident, setIncident] = useState('')
  const [labels, setLabels] = useState({ environments: '', applications: '' })
  const query = useAsk(Freezes, {}, { enabled: open })
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        <Icon name="paused" /> Freeze
      </button>
      {open && (
        <Confirm
          title={`Freeze ${name}`}
          submit="Start the freeze"
          reasoned="required"
          done={`${name} is frozen.`}
          onClose={() => setOpen(false)}
          send={async (reason) => {
            const endsAt = new Date(Date.now() + hours * 3_600_000).toISOString()
            const asked = { environmentLabels: selector(labels.environments), applicationLabels: selector(labels.applications) }
            accepted((await ask(StartFreeze, { input: { ...scope, ...asked, rollbacks, reason, incident: incident.trim() || null, endsAt } })).startFreeze)
            await query.refetch()
          }}
        >
          <p>Rollouts stop at their next passage, also those under way. What runs keeps running.</p>
          <p>
            <label>
              For{' '}
              <select value={hours} onChange={(e) => setHours(Number(e.target.value))}>
                {lengths.map((h) => (
                  <option key={h} value={h}>
                    {h === 1 ? '1 hour' : `${h} hours`}
                  </option>
                ))}
              </select>
            </label>
          </p>
          <p>
            <label>
              <input type="checkbox" checked={rollbacks} onChange={(e) => setRollbacks(e.target.checked)} /> Stop rollbacks, too
            </label>
          </p>
          {!scope.environments && (
            <p>
              <label>
                Only environments with the labels{' '}
                <input value={labels.environments} placeholder="region=eu" onChange={(e) => setLabels({ ...labels, environments: e.target.value })} />
              </label>
            </p>
          )}
          {!scope.applications && (
            <p>
              <label>
                Only applications with the labels{' '}
                <input value={labels.applications} placeholder="tier=critical, team=web" onChange={(e) => setLabels({ ...labels, applications: e.target.value })} />
              </label>{' '}
              <span className="faint">All have to match; empty for any.</span>
            </p>
          )}
          <p>
            <label>
              Incident <input value={incident} maxLength={100} placeholder="INC-99" onChange={(e) => setIncident(e.target.value)} />
            </label>{' '}
            <span className="faint">Policies see it while the freeze is in force.</span>
          </p>
        </Confirm>
      )}
    </>
  )
}

/** Lets one rollout past the freezes that stop it. */
export function BypassDialog({ rolloutId, what, onClose }: { rolloutId: string; what: string; onClose: () => void }) {
  return (
    <Confirm
      title={`Bypass the freeze for ${what}`}
      submit="Bypass the freeze"
      reasoned="required"
      done={`${what} passes the freeze.`}
      onClose={onClose}
      send={async (reason) => accepted((await ask(BypassFreeze, { input: { rolloutId, reason } })).bypassFreeze)}
    >
      <p>This lets one rollout past the freezes that stop it now, and past no other. Your name and reason are recorded in the journal.</p>
    </Confirm>
  )
}

/** Whether automation may change what runs in an environment. */
export function Pin({ environment, changed }: { environment: { id: string; name: string; pin: { reason: string; author: string; since: string } | null }; changed: () => Promise<unknown> }) {
  const [open, setOpen] = useState(false)
  const { id, name, pin } = environment
  return (
    <section className="card" aria-labelledby="pin">
      <h2 id="pin">Pin</h2>
      {pin ? (
        <>
          <p>
            Pinned by <bdi>{pin.author}</bdi>, <Ago at={pin.since} />: policies, schedules and machines do not change what runs here.
          </p>
          <p dir="auto">{pin.reason}</p>
        </>
      ) : (
        <p className="faint">Not pinned: automation may change what runs here.</p>
      )}
      <p className="line">
        <button type="button" onClick={() => setOpen(true)}>
          {pin ? 'Unpin' : 'Pin'}
        </button>
        {!pin && <FreezeButton scope={{ environments: [id] }} name={name} />}
      </p>
      {open && (
        <Confirm
          title={pin ? `Unpin ${name}` : `Pin ${name}`}
          submit={pin ? 'Unpin' : 'Pin'}
          tone="primary"
          reasoned={pin ? true : 'required'}
          done={pin ? `${name} is not pinned any more.` : `${name} is pinned.`}
          onClose={() => setOpen(false)}
          send={async (reason) => {
            const input = { environmentId: id, reason }
            if (pin) accepted((await ask(UnpinEnvironment, { input })).unpinEnvironment)
            else accepted((await ask(PinEnvironment, { input })).pinEnvironment)
            await changed()
          }}
        >
          <p>{pin ? 'Automation may change what runs there again.' : 'Only people change what runs there, until someone unpins it.'}</p>
        </Confirm>
      )}
    </section>
  )
}
