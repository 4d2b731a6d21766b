// Where a rollback goes, and what it leaves out.
import type { RolloutPageData, SetsData, SkipCause } from '../api/generated'
import { readPipeline, type Step } from './pipeline'
import { displayed } from './names'

type Rollout = NonNullable<RolloutPageData['rollout']>
type App = Pick<NonNullable<SetsData['application']>, 'environments' | 'flowDefinition'>

export interface Target {
  name: string
  displayName: string
  /** What is live there; null for nothing. */
  live: { id: string; name: string } | null
  /** The version set is live there, and nothing has been tried there since: a rollback skips it. */
  unchanged: boolean
}

/** The environments that a rollback to a version set may go to, in the order of the pipeline. The server decides by the record; this is what it will say. */
export function targets(app: App, setId: string): Target[] {
  const steps = readPipeline(app.flowDefinition?.definition)
  return steps.flatMap((step) => {
    const cell = step.kind === 'deploy' ? app.environments.find((e) => e.environment.name === step.environment) : undefined
    if (!cell) return []
    const touched = Boolean(cell.latest?.startedAt) && cell.latest?.status !== 'COMPLETED' && cell.latestVersionSet?.id !== cell.live?.id
    return [{ name: cell.environment.name, displayName: displayed(cell.environment), live: cell.live, unchanged: cell.live?.id === setId && !touched }]
  })
}

/** The version sets that one may go back to from a rollout: those made before its own, which is never offered itself. */
export function earlier<S extends { id: string; createdAt: string }>(sets: S[], from: { id: string; createdAt: string }): S[] {
  return sets.filter((s) => s.id !== from.id && Date.parse(s.createdAt) < Date.parse(from.createdAt))
}

/** The text about an environment that a rollback leaves out. */
export function skipWords(cause: SkipCause, set: string): string {
  return cause === 'UNCHANGED' ? `${set} is live there already` : 'left out of this rollback on request'
}

/**
 * Whether a step between environments goes with the environments that a rollout skips: the rule of the service, which leaves out an
 * approval when nothing that it leads to is entered, or when all that it leads to before the next approval has the version set already.
 */
export function leftOut(steps: Step[], at: number, skipped: Rollout['skippedEnvironments']): boolean {
  const cause = (step: Step | undefined) => (step?.kind === 'deploy' ? skipped.find((s) => s.environment.name === step.environment)?.cause : undefined)
  if (skipped.length === 0) return false
  const before = steps.slice(0, at).findLast((s) => s.kind === 'deploy')
  const after = steps.slice(at + 1)
  const ahead = after.filter((s) => s.kind === 'deploy')
  const behind = before !== undefined && cause(before) !== undefined
  if (ahead.length === 0) return behind
  if (ahead.every((s) => cause(s) !== undefined)) return true
  if (steps[at]?.kind !== 'approval') return behind
  const first = after.findIndex((s) => s.kind === 'deploy')
  const next = after.findIndex((s, i) => i > first && s.kind === 'approval')
  const section = after.slice(0, next < 0 ? undefined : next).filter((s) => s.kind === 'deploy')
  return section.every((s) => cause(s) === 'UNCHANGED')
}
