// The journal of a rollout, newest first: who did what to which part, when and why.
import { useState } from 'react'
import { useSearchParams } from 'react-router'
import type { JournalRow } from '../api/generated'
import type { LiveRollout } from '../api/hooks'
import { absolute, clockTime } from '../logic/time'
import { useFirst } from './fold'
import { Who } from './lane'
import { Logs } from './logs'
import { stateWord } from './state'
import { displayed } from '../logic/names'

const verbs: Record<string, string> = {
  create: 'created',
  start: 'started',
  pause: 'paused',
  resume: 'resumed',
  request_approval: 'requested approval',
  approve: 'approved',
  reject: 'rejected',
  request_passage: 'asked to pass',
  degrade: 'degraded',
  fail: 'failed',
  cancel: 'cancelled',
  expire: 'expired',
  abort: 'aborted',
  retry: 'retried',
  plan: 'planned',
  skip: 'skipped a part',
  break_glass: 'approvals overridden by break-glass',
  stop_rollback: 'automatic rollback stopped',
  stop_passage: 'was stopped at',
  bypass_freeze: 'freeze bypassed',
  start_job: 'job started',
  end_job: 'job ended',
  pause_wave: 'paused the wave',
  resume_wave: 'resumed the wave',
  reach_gate: 'reached',
  pass_gate: 'passed',
}

function subjects(rollout: LiveRollout['rollout']): Map<string, string> {
  const names = new Map([[rollout.id, 'rollout']])
  for (const e of rollout.environments) {
    names.set(e.id, displayed(e.environment))
    for (const d of e.deployments) names.set(d.id, `${displayed(e.environment)}/${displayed(d.service)}`)
  }
  return names
}

/** Rows that say something which no other row says: not the creation of parts, nor the rollout's rows about gates, which its parts' rows repeat. */
function informs(row: JournalRow, rollout: string): boolean {
  if (row.event === 'create') return row.subject === rollout
  return row.subject !== rollout || !['reach_gate', 'pass_gate', 'request_passage'].includes(row.event)
}

/** "staging/50" of a deployment in staging is its gate at 50 %. */
function gateWords(row: JournalRow): string {
  const weight = /\/(\d+)$/.exec(row.gateId ?? '')?.[1]
  return weight && row.subject.startsWith('deployment_') ? `${weight}\u00a0%` : `“${row.gateId}”`
}

/** What is beside a rollout: its journal, or the log of its workflow; the address says which. */
export function Record({ rollout, rows }: { rollout: LiveRollout['rollout']; rows: JournalRow[] }) {
  const [search, setSearch] = useSearchParams()
  const log = search.get('beside') === 'log'
  const choose = (beside: string) => setSearch(beside ? { beside } : {}, { replace: true, preventScrollReset: true })
  return (
    <section className="card journal" aria-label="Record">
      <div className="switch" role="group" aria-label="What is shown beside the rollout">
        <button type="button" aria-pressed={!log} onClick={() => choose('')}>
          Journal
        </button>
        <button type="button" aria-pressed={log} onClick={() => choose('log')}>
          Workflow log
        </button>
      </div>
      {log ? <Logs rolloutId={rollout.id} /> : <Journal rollout={rollout} rows={rows} />}
    </section>
  )
}

function Journal({ rollout, rows }: { rollout: LiveRollout['rollout']; rows: JournalRow[] }) {
  const [all, setAll] = useState(false)
  const names = subjects(rollout)
  const listed = all ? rows : rows.filter((r) => informs(r, rollout.id))
  const [shown, earlier] = useFirst(listed.toReversed(), 100, 'earlier rows')
  return (
    <>
      <label className="faint">
        <input type="checkbox" checked={all} onChange={(e) => setAll(e.target.checked)} /> every row
      </label>
      <ol tabIndex={0} aria-label="Journal, newest first">
        {shown.map((r, i) => (
          <Entry key={listed.length - i} row={r} name={names.get(r.subject) ?? r.subject} />
        ))}
        {earlier && <li>{earlier}</li>}
      </ol>
    </>
  )
}

/** A pause or resume that changes no state yet is a wish. */
function verb(row: JournalRow): string {
  if (row.event === 'complete') return stateWord(row.toState)
  if (row.event === 'break_glass' && row.gateId) return 'gate overridden by break-glass'
  if (row.fromState === row.toState && (row.event === 'pause' || row.event === 'resume')) return `asked to ${row.event}`
  return verbs[row.event] ?? row.event.replaceAll('_', ' ')
}

function Entry({ row, name }: { row: JournalRow; name: string }) {
  return (
    <li className="entry" data-event={row.event}>
      <time dateTime={row.createdAt} title={absolute(row.createdAt)}>
        {clockTime(row.createdAt)}
      </time>
      <div>
        <p>
          <strong>{name}</strong> {verb(row)}
          {row.gateId && ` ${gateWords(row)}`}
          {row.principalType !== 'system' && <span className="faint"> by <Who row={row} /></span>}
        </p>
        {row.reason && (
          <p className={row.event === 'cancel' ? 'faint brief' : 'faint'} dir="auto" title={row.reason}>
            {row.reason}
          </p>
        )}
      </div>
    </li>
  )
}
