// Live versions: what a cell of the matrix shows, and which cells are asked for.
import type { CellFields, Health, MatrixFilter, RolloutState, RolloutStatus } from '../api/generated'
import { isOver } from './waiting'

export interface Attempt {
  rolloutId: string
  state: RolloutStatus
  set: string
  isRollback: boolean
  /** The gate that it waits at; null for none. */
  gate: string | null
}

/** What is on its way to a cell, or was tried last and did not come through. A rollout that ended before it came here is neither. */
export function attempt(cell: CellFields): Attempt | null {
  const { latest, state, latestVersionSet } = cell
  if (!latest || !state || state === 'COMPLETED' || (isOver(state) && !latest.startedAt)) return null
  return { rolloutId: latest.rollout.id, state: latest.status, set: latestVersionSet?.name ?? '', isRollback: latest.rollout.isRollback, gate: isOver(state) ? null : (cell.gates[0]?.gateId ?? null) }
}

export const states: RolloutState[] = ['PENDING', 'IN_PROGRESS', 'PAUSED', 'COMPLETED', 'FAILED', 'CANCELLED']
export const healths: Health[] = ['HEALTHY', 'PROGRESSING', 'DEGRADED']
/** What the address says of the filter; each has its name there. */
export const filterNames = ['q', 'environment', 'state', 'health', 'waiting'] as const

/** The filter that an address means; null for none. What it says that nobody knows asks nothing. */
export function filterOf(search: URLSearchParams): MatrixFilter | null {
  const filter: MatrixFilter = {}
  const text = search.get('q')?.trim()
  const environment = search.get('environment')
  const state = states.find((s) => s.toLowerCase() === search.get('state'))
  const health = healths.find((h) => h.toLowerCase() === search.get('health'))
  if (text) filter.text = text
  if (environment) filter.environments = [environment]
  if (state) filter.states = [state]
  if (health) filter.health = [health]
  if (search.get('waiting') === 'yes') filter.waiting = true
  return Object.keys(filter).length > 0 ? filter : null
}

const tiers = ['DEVELOPMENT', 'QA', 'STAGING', 'PRODUCTION']

export function byTier(a: { tier: string; name: string }, b: { tier: string; name: string }): number {
  return tiers.indexOf(a.tier) - tiers.indexOf(b.tier) || a.name.localeCompare(b.name)
}
