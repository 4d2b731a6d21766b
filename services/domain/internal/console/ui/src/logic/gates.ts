// Where each service stands: a deployment reaches a gate and passes it, all services of an environment together. The API reads
// it off the journal, so the console keeps no memory of its own.
import type { DeploymentState, GateFields, JournalRow, RolloutPageData, SkipCause } from '../api/generated'
import { readPipeline, type GatePlan, type Step } from './pipeline'
import { leftOut } from './scope'
import { leftParts, take, takeJobs } from './skips'

type Rollout = NonNullable<RolloutPageData['rollout']>
export type Place = Rollout['environments'][number]
export type Deployment = Place['deployments'][number]

/** Passed, waits here, on its way to here, not reached, not needed (nothing to shift: a first deploy, or stable already), stopped, taken back. */
export type Mark = 'passed' | 'here' | 'next' | 'ahead' | 'skipped' | 'stopped' | 'back'

export interface Row {
  deployment: Deployment
  /** One for each gate. */
  marks: Mark[]
  /** Of the last column, full traffic and healthy. */
  end: Mark
}

export interface Lane {
  place: Place
  plan: GatePlan[]
  rows: Row[]
  /** How many services have come to each gate, or passed it. */
  arrived: number[]
}

export function gateId(environment: string, weight: number): string {
  return `${environment}/${weight}`
}

const over: DeploymentState[] = ['HEALTHY', 'DEGRADED', 'FAILED', 'CANCELLED']

function row(deployment: Deployment, environment: string, plan: GatePlan[]): Row {
  const ended = over.includes(deployment.state)
  const healthy = deployment.state === 'HEALTHY'
  const seen = new Map(deployment.gates.map((g) => [g.gateId, g]))
  if (deployment.status === 'ABORTING' || deployment.status === 'ABORTED') {
    // Wherever it had come, it is not there any more.
    const marks = plan.map((gate): Mark => (seen.get(gateId(environment, gate.weight))?.reachedAt ? 'back' : 'ahead'))
    return { deployment, marks, end: 'back' }
  }
  let ahead = false // something before this gate is not done
  const marks = plan.map((gate): Mark => {
    const at = seen.get(gateId(environment, gate.weight))
    if (at?.passedAt) return 'passed'
    const reached = Boolean(at?.reachedAt)
    if (healthy) return reached ? 'passed' : 'skipped'
    if (ended) {
      if (reached) return ahead ? 'ahead' : 'passed'
      const stopped = !ahead && deployment.startedAt !== null
      ahead = true
      return stopped ? 'stopped' : 'ahead'
    }
    if (ahead) return 'ahead'
    ahead = true
    if (reached) return 'here'
    return deployment.state === 'DEPLOYING' ? 'next' : 'ahead'
  })
  return { deployment, marks, end: end(deployment.state, ahead, deployment.startedAt !== null) }
}

function end(state: DeploymentState, ahead: boolean, started: boolean): Mark {
  if (state === 'HEALTHY') return 'here'
  if (ahead) return 'ahead'
  if (state === 'DEPLOYING') return 'next'
  return started && over.includes(state) ? 'stopped' : 'ahead'
}

export function lane(place: Place, steps: Step[]): Lane {
  const step = steps.find((s) => s.kind === 'deploy' && s.environment === place.environment.name)
  const plan = step?.kind === 'deploy' ? step.gates : []
  const rows = place.deployments.map((d) => row(d, place.environment.name, plan))
  const arrived = plan.map((_, i) => rows.filter((r) => r.marks[i] === 'here' || r.marks[i] === 'passed').length)
  return { place, plan, rows, arrived }
}

/** Services that have failed or do badly before those that are on their way, and those before all others; otherwise in their order. */
export function urgentFirst(rows: Row[]): Row[] {
  const rank = ({ deployment: { state } }: Row) => (state === 'FAILED' || state === 'DEGRADED' ? 0 : state === 'DEPLOYING' ? 1 : 2)
  return rows.toSorted((a, b) => rank(a) - rank(b))
}

/** An approval or pause between environments, in the order of the pipeline, with what became of it. */
export type Stop =
  | { kind: 'approval'; gateId: string; reason: string; open: GateFields | null; resolution: JournalRow | null; before: string }
  | { kind: 'pause'; seconds: number; name: string; left: string | null }
  | { kind: 'other'; type: string; name: string; left: string | null }
  | { kind: 'left'; what: string; why: string }
  | { kind: 'skipped'; environment: { name: string; displayName?: string; tier: string }; cause: SkipCause }

export type Part = { kind: 'lane'; lane: Lane } | { kind: 'stop'; stop: Stop; key: string }

/** What closes a gate. */
const answers = ['approve', 'reject', 'expire', 'break_glass']

/** The rollout from top to bottom: lanes, and what stands between them. */
export function course(rollout: Rollout, journal: JournalRow[]): Part[] {
  const steps = readPipeline(rollout.flowDefinition.definition)
  const parts: Part[] = []
  const left = leftParts(journal)
  const ask = (gateId: string, reason: string, before: string) => {
    const open = rollout.openGates.find((g) => g.gateId === gateId)
    const resolution = journal.findLast((r) => r.gateId === gateId && answers.includes(r.event)) ?? null
    parts.push({ kind: 'stop', key: gateId, stop: { kind: 'approval', gateId, reason, open: open ?? null, resolution: open ? null : resolution, before } })
  }
  steps.forEach((s, index) => {
    if (s.kind === 'deploy') {
      const place = rollout.environments.find((e) => e.environment.name === s.environment)
      const skipped = rollout.skippedEnvironments.find((e) => e.environment.name === s.environment)
      if (skipped) parts.push({ kind: 'stop', key: `skip-${s.environment}`, stop: { kind: 'skipped', ...skipped } })
      if (!place || skipped) return
      if (s.approval) ask(s.environment, s.approval.reason, s.environment)
      parts.push({ kind: 'lane', lane: lane(place, steps) })
      for (const job of takeJobs(s, left)) parts.push({ kind: 'stop', key: `left-${index}-${job.what}`, stop: { kind: 'left', ...job } })
    } else if (leftOut(steps, index, rollout.skippedEnvironments)) {
      // It goes with the environments that it is about.
    } else if (s.kind === 'approval') {
      const next = steps.slice(index + 1).find((n) => n.kind === 'deploy')
      ask(s.gateId, s.reason, next?.kind === 'deploy' ? next.environment : '')
    } else {
      parts.push({ kind: 'stop', key: `step-${index}`, stop: { ...s, left: take(s, left) } })
    }
  })
  return parts
}

type Requirements = GateFields['requirements']

/** "1 of 2 approvals by members of platform". Beside requirements with groups, one without is about people of any of those. */
export function requirement({ group, quorum, given }: Requirements[number], index: number): string {
  const by = group ? `members of ${group}` : index > 0 ? 'people' : 'anyone with “approve”'
  return `${given} of ${quorum} ${quorum > 1 ? 'approvals' : 'approval'} by ${by}`
}

/** How many approvals are missing at least after one more, which may count for every requirement. */
export function missingAfter(all: Requirements): number {
  return Math.max(...all.map((r) => r.quorum - r.given - 1))
}

/** What one more approval leads to. */
export function afterApproval(all: Requirements, what: string): string {
  const open = all.filter((r) => r.given < r.quorum)
  // Which of several requirements the viewer counts for is decided by the server.
  if (all.length > 1 && (open.length > 1 || missingAfter(all) > 0)) return `${what} continues when all requirements are met. Missing: ${open.map((r) => requirement(r, all.indexOf(r))).join('; ')}.`
  const missing = missingAfter(all)
  return missing > 0 ? `${what} continues when ${missing} more ${missing > 1 ? 'people have' : 'person has'} approved.` : `${what} continues.`
}
