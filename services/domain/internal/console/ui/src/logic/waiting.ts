// Why a rollout is waiting: each condition that is not met, who or what can resolve it, and since when. It is said from what
// the API shows; nothing is guessed.
import type { JournalRow, RolloutPageData } from '../api/generated'
import { course, type Lane } from './gates'

type Rollout = NonNullable<RolloutPageData['rollout']>

export interface Reason {
  key: string
  /** What it waits for. */
  what: string
  /** Why that is so; empty where there is nothing to say. */
  why: string
  /** Who or what resolves it. */
  who: string
  since: string | null
  /** The gate to approve or reject. */
  gateId?: string
}

const terminal = ['COMPLETED', 'FAILED', 'CANCELLED']

export function isOver(state: string): boolean {
  return terminal.includes(state)
}

function names(all: string[]): string {
  return all.length < 2 ? (all[0] ?? '') : `${all.slice(0, -1).join(', ')} and ${all[all.length - 1]}`
}

/** What an environment under way waits for: the services that have not come to the gate that others stand at, or to health. */
function underway(lane: Lane, journal: JournalRow[]): Reason | null {
  const moving = lane.rows.filter((r) => r.deployment.state === 'DEPLOYING' || r.deployment.state === 'PENDING')
  if (moving.length === 0) return null
  const environment = lane.place.environment.name
  const ids = new Set(lane.rows.map((r) => r.deployment.id))
  const since = journal.findLast((r) => ids.has(r.subject))?.createdAt ?? lane.place.startedAt
  const key = `lane-${lane.place.id}`
  const index = lane.plan.findIndex((_, i) => moving.some((r) => r.marks[i] === 'here' || r.marks[i] === 'next'))
  const gate = lane.plan[index]
  if (!gate) {
    const late = names(moving.map((r) => r.deployment.service.name))
    return { key, what: `${late} to be healthy in ${environment}`, why: 'All gates are behind it; the new version takes over completely.', who: 'the cluster', since }
  }
  const coming = moving.filter((r) => r.marks[index] === 'next' || r.marks[index] === 'ahead').map((r) => r.deployment.service.name)
  const standing = moving.filter((r) => r.marks[index] === 'here').map((r) => r.deployment.service.name)
  if (coming.length > 0) {
    const why = standing.length > 0 ? `${names(standing)} ${standing.length > 1 ? 'stand' : 'stands'} there already: no service passes a gate before all have come.` : ''
    return { key, what: `${names(coming)} to reach ${gate.weight} % in ${environment}`, why, who: 'the cluster', since }
  }
  if (gate.approval) return null // its gate is open, or about to be
  const why = gate.soak > 0 ? `All services soak here for ${gate.soak} s.` : 'All services stand here, and go on together.'
  return { key, what: `the gate at ${gate.weight} % in ${environment}`, why, who: gate.soak > 0 ? 'time' : 'the workflow', since }
}

export function whyWaiting(rollout: Rollout, journal: JournalRow[]): Reason[] {
  if (isOver(rollout.state)) return []
  const reasons: Reason[] = rollout.openGates.map((g) => ({
    key: `gate-${g.gateId}`,
    what: `approval of “${g.gateId}”`,
    why: g.reason,
    who: 'anybody who may approve in this organization',
    since: g.requestedAt,
    gateId: g.gateId,
  }))
  if (rollout.state === 'PENDING') {
    reasons.push({
      key: 'start',
      what: rollout.workflowRef ? 'its workflow to begin' : 'the workflow service to take it',
      why: rollout.workflowRef ? '' : 'It is offered again and again until it is taken.',
      who: 'the workflow service',
      since: rollout.createdAt,
    })
  }
  if (rollout.state === 'PAUSED') {
    const pause = journal.findLast((r) => r.event === 'pause')
    reasons.push({ key: 'pause', what: 'somebody to resume it', why: pause?.reason ?? '', who: 'anybody who may act in this organization', since: pause?.createdAt ?? null })
  }
  for (const part of course(rollout, journal)) {
    if (part.kind !== 'lane' || part.lane.place.state !== 'IN_PROGRESS') continue
    const reason = underway(part.lane, journal)
    if (reason) reasons.push(reason)
  }
  return reasons
}
