// What is where: the state of an application in each environment, from its newest rollouts.
import type { OverviewRollout, PlaceFields } from '../api/generated'
import { isOver } from './waiting'

export interface Cell {
  /** What is live: the set of the last rollout that completed here. */
  live: { id: string; name: string } | null
  /** The rollout that made it live, if it is among the newest. */
  liveBy: { rollout: OverviewRollout; place: PlaceFields } | null
  /** What is on its way here, or what was tried last and did not come through. */
  attempt: { rollout: OverviewRollout; place: PlaceFields } | null
}

/** Rollouts are newest first. A rollout that was cancelled or failed before it came here is no attempt at this environment. */
export function cell(rollouts: OverviewRollout[], environment: string): Cell {
  const here = rollouts.flatMap((rollout) => {
    const place = rollout.environments.find((e) => e.environment.name === environment)
    return place ? [{ rollout, place }] : []
  })
  const newest = here[0]
  if (!newest) return { live: null, liveBy: null, attempt: null }
  const done = here.find((h) => h.place.state === 'COMPLETED') ?? null
  const live = newest.place.state === 'COMPLETED' ? newest.rollout.versionSet : newest.place.previousVersionSet
  const liveBy = done && live && done.rollout.versionSet.id === live.id ? done : null
  const tried = here.find((h) => h.place.startedAt !== null || !isOver(h.place.state))
  const attempt = tried && tried.place.state !== 'COMPLETED' ? tried : null
  return { live, liveBy, attempt }
}

/** An open gate that holds up this environment: its own, one of its weights, or the step before it. */
export function gateBefore(rollout: OverviewRollout, place: PlaceFields): string | null {
  const name = place.environment.name
  const own = rollout.openGates.find((g) => g.gateId === name || g.gateId.startsWith(`${name}/`))
  if (own) return own.gateId
  const first = rollout.environments.filter((e) => !isOver(e.state)).sort((a, b) => a.position - b.position)[0]
  return first?.id === place.id ? (rollout.openGates[0]?.gateId ?? null) : null
}

const tiers = ['DEVELOPMENT', 'QA', 'STAGING', 'PRODUCTION']

export function byTier(a: { tier: string; name: string }, b: { tier: string; name: string }): number {
  return tiers.indexOf(a.tier) - tiers.indexOf(b.tier) || a.name.localeCompare(b.name)
}
