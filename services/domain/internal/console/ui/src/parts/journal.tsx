// The journal of a rollout, newest first: who did what to which part, when and why.
import { useState } from 'react'
import type { JournalRow } from '../api/generated'
import type { LiveRollout } from '../api/hooks'
import { absolute, clockTime } from '../logic/time'
import { who } from './lane'
import { stateWord } from './state'

const verbs: Record<string, string> = {
  create: 'made',
  start: 'started',
  pause: 'paused',
  resume: 'went on',
  request_approval: 'asks for approval',
  approve: 'approved',
  reject: 'rejected',
  complete: 'done',
  degrade: 'degraded',
  fail: 'failed',
  cancel: 'cancelled',
  reach_gate: 'reached',
  pass_gate: 'passed',
}

function subjects(rollout: LiveRollout['rollout']): Map<string, string> {
  const names = new Map([[rollout.id, 'rollout']])
  for (const e of rollout.environments) {
    names.set(e.id, e.environment.name)
    for (const d of e.deployments) names.set(d.id, `${e.environment.name}/${d.service.name}`)
  }
  return names
}

export function Journal({ rollout, rows }: { rollout: LiveRollout['rollout']; rows: JournalRow[] }) {
  const [all, setAll] = useState(false)
  const names = subjects(rollout)
  const shown = all ? rows : rows.filter((r) => !(r.event === 'create' && r.subject !== rollout.id))
  return (
    <section className="card journal" aria-labelledby="journal">
      <header>
        <h2 id="journal">Journal</h2>
        <label className="faint">
          <input type="checkbox" checked={all} onChange={(e) => setAll(e.target.checked)} /> every row
        </label>
      </header>
      <ol tabIndex={0} aria-label="Journal, newest first">
        {shown
          .map((r, i) => <Entry key={i} row={r} name={names.get(r.subject) ?? r.subject} />)
          .reverse()}
      </ol>
    </section>
  )
}

function Entry({ row, name }: { row: JournalRow; name: string }) {
  const moved = row.fromState !== row.toState && row.event !== 'create'
  return (
    <li className={`entry ${row.event}`}>
      <time dateTime={row.createdAt} title={absolute(row.createdAt)}>
        {clockTime(row.createdAt)}
      </time>
      <div>
        <p>
          <strong>{name}</strong> {verbs[row.event] ?? row.event.replaceAll('_', ' ')}
          {row.gateId && <> “{row.gateId}”</>}
          {moved && <span className="faint"> → {stateWord(row.toState)}</span>}
          {row.principalType !== 'system' && <span className="faint"> by {who(row)}</span>}
        </p>
        {row.reason && <p className="faint">{row.reason}</p>}
      </div>
    </li>
  )
}
