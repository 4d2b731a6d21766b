// What waves of a fleet need, in words, from the fleet that a rollout has pinned for an environment.
import { durationText } from './schedules'

interface Threshold {
  min_healthy_percent?: number
  max_failed?: number
}

interface Spec {
  interval_seconds?: number
  freshness_seconds?: number
  success?: { wave?: Threshold; overall?: Threshold }
}

/** The terms of a fleet, a sentence each. A rollback waits for nothing between its waves, and is judged at its end. */
export function fleetTerms(fleet: unknown, isRollback: boolean): string[] {
  if (typeof fleet !== 'object' || fleet === null) return []
  const spec = fleet as Spec
  const each = bounds(spec.success?.wave)
  const all = bounds(spec.success?.overall)
  const terms: string[] = []
  if (isRollback) terms.push('A rollback continues whatever fails, and is judged after its last wave.')
  if (each) terms.push(`Each wave needs ${each}.`)
  if (all) terms.push(`All waves together need ${all}.`)
  if (!each && !all) terms.push('Every target has to be healthy.')
  if (isRollback) return terms
  if (spec.interval_seconds) terms.push(`A wave waits ${durationText(spec.interval_seconds)} after the end of the one before.`)
  if (spec.freshness_seconds) terms.push(`It does not begin if the one before ended more than ${durationText(spec.freshness_seconds)} ago.`)
  return terms
}

function bounds(t: Threshold | undefined): string {
  const all: string[] = []
  if (t?.min_healthy_percent !== undefined) all.push(`at least ${t.min_healthy_percent} % healthy`)
  if (t?.max_failed !== undefined) all.push(`at most ${t.max_failed} failed`)
  return all.join(' and ')
}
