// The passages of a rollout, by its journal: which were requested, when each was granted, what satisfied it, and what stops it (D46).
import type { JournalRow } from '../api/generated'
import { span } from './time'
import { displayed } from './names'

type Condition = JournalRow['conditions'][number]

export interface Passage {
  gateId: string
  /** "Into staging", "Beyond 50 % in staging", or the name of a step between environments. */
  title: string
  /** Null where it was granted without having to wait. */
  requestedAt: string | null
  /** Null while it is not granted. */
  grantedAt: string | null
  /** When something stopped it that had everything else; null otherwise. */
  stoppedAt: string | null
  /** What satisfied each condition, what was left out, or what stops it: one sentence each. */
  grounds: string[]
  /** Whether it needed nothing. */
  silent: boolean
}

/** What the journal needs to say of a rollout. */
interface Course {
  id: string
  state: string
  environments: Array<{ environment: { name: string } }>
}

function title(gateId: string, environments: Set<string>): string {
  if (environments.has(gateId)) return `Into ${gateId}`
  const [, name, weight] = /^(.+)\/(\d+)$/.exec(gateId) ?? []
  return name && weight && environments.has(name) ? `Beyond ${weight} % in ${name}` : `Past “${gateId}”`
}

const causes: Record<NonNullable<Condition['cause']>, string> = {
  FIRST_DEPLOY: 'nothing is live there yet',
  UNCHANGED: 'these versions are live there already',
  PROMOTE_FULL: 'the rollback policy promotes in full',
  NO_GATES: 'the driver does not stop at weights',
  QUICK_SYNC: 'the rollout is a quick sync',
  PROGRAM: 'the driver skips them this time',
}

function people(c: Condition): string {
  return c.by
    .map((one) => (one.principal?.name ?? [one.principalType, one.principalId].filter((w) => w !== null).join(' ')) + (one.groups.length > 0 ? ` (${one.groups.join(', ')})` : ''))
    .join(', ')
}

function satisfied(c: Condition): string {
  const by = people(c)
  const subject = c.subject ?? ''
  switch (c.status) {
    case 'EXPIRED':
      return `${subject}: approved by expiry`
    case 'BREAK_GLASS':
      return `${c.kind === 'CHECK' ? 'check ' : ''}${subject}: passed by break-glass by ${by}`
    case 'APPROVED':
      return c.kind === 'POLICY' ? `policies allow it (${subject})` : `${subject}: approved by ${by}`
    case 'SUCCESS':
      return `check ${subject}${c.environment ? ` of ${displayed(c.environment)}` : ''}: success${by ? ` by ${by}` : ''}`
    case 'STOPPED':
      return c.kind === 'PIN' ? `stopped: ${c.environment ? displayed(c.environment) : subject} is pinned` : `stopped by ${subject}`
    case 'BYPASSED':
      return `${subject} is bypassed`
    case 'NOT_GRANTED':
      return `${subject} was never granted`
    case 'NOT_NEEDED':
      return 'no approval required'
    case 'SKIPPED':
      return ''
  }
}

/** The conditions of a row, as sentences. Weights that are skipped for one reason are one sentence. */
function grounds(row: JournalRow): string[] {
  // Rows of earlier releases have a text, or nothing.
  if (row.conditions.length === 0) return row.reason ? [row.reason] : []
  const skipped = row.conditions.filter((c) => c.kind === 'SKIPPED_WEIGHT')
  const all = row.conditions.filter((c) => c.kind !== 'SKIPPED_WEIGHT').map(satisfied)
  if (skipped.length > 0) {
    const weights = skipped.map((c) => `${/\d+$/.exec(c.subject ?? '')?.[0] ?? '?'} %`).join(', ')
    const cause = skipped[0]?.cause
    all.push(`will not stop at ${weights}${cause ? `: ${causes[cause]}` : ''}`)
    const soak = skipped.reduce((sum, c) => sum + c.soakSeconds, 0)
    if (soak > 0) all.push(`soak times of ${span(soak * 1000)} in all are omitted`)
  }
  return all
}

/** Passages in the order in which they were requested or granted first; of one that was requested again, as after an abort, the last time. */
export function passages(rollout: Course, journal: JournalRow[]): Passage[] {
  const environments = new Set(rollout.environments.map((e) => e.environment.name))
  const found = new Map<string, Passage>()
  for (const row of journal) {
    if (row.subject !== rollout.id || !row.gateId) continue
    const before = found.get(row.gateId)
    const passage = { gateId: row.gateId, title: title(row.gateId, environments), requestedAt: before?.requestedAt ?? null, grantedAt: null, stoppedAt: null, grounds: [], silent: false }
    if (row.event === 'request_passage') found.set(row.gateId, { ...passage, requestedAt: row.createdAt })
    if (row.event === 'stop_passage') found.set(row.gateId, { ...passage, stoppedAt: row.createdAt, grounds: grounds(row) })
    // Rows of earlier releases say that a gate was passed, but not why.
    if (row.event === 'pass_gate') found.set(row.gateId, { ...passage, grantedAt: row.createdAt, grounds: grounds(row), silent: row.conditions.every((c) => c.kind === 'NOTHING_ASKED') })
  }
  return [...found.values()]
}

/** The passages that policies decided about: what the journal says, and what waits because of them. */
export function policed(rollout: { openGates: Array<{ gateId: string }>; waitingOn: Array<{ kind: string; gateId: string | null }> }, journal: JournalRow[]): Set<string> {
  const found = new Set<string>()
  for (const row of journal) if (row.gateId && row.conditions.some((c) => c.kind === 'POLICY')) found.add(row.gateId)
  for (const w of rollout.waitingOn) if (w.kind === 'POLICY' && w.gateId) found.add(w.gateId)
  for (const g of rollout.openGates) {
    const at = g.gateId.indexOf('/policy/')
    if (at > 0) found.add(g.gateId.slice(0, at))
  }
  return found
}

/** Whether it says more than that nothing was in the way. */
export function notable(passage: Passage): boolean {
  return !passage.silent
}

/** That the rollout failed because of a report from beyond a passage that was not granted; null for no breach. */
export function breach(rollout: Course, journal: JournalRow[]): { passage: string | null; text: string } | null {
  const row = journal.findLast((r) => r.subject === rollout.id && r.breach)
  if (!row) return null
  return { passage: row.conditions.find((c) => c.kind === 'PASSAGE')?.subject ?? null, text: row.reason ?? '' }
}
