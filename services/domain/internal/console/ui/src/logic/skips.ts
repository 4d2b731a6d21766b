// Pauses, analyses and jobs that a rollout leaves out because of what is new in it (R4-26). The journal says so when the rollout begins, by the
// name that the part has there (pkg/flow) and with the reason.
import type { JournalRow } from '../api/generated'
import type { Step } from './pipeline'

export interface Left {
  what: string
  why: string
}

const between = ' is skipped: '

/** The parts of the pipeline that were left out, in its order. */
export function leftParts(journal: JournalRow[]): Left[] {
  return journal.flatMap((row) => {
    const reason = row.reason ?? ''
    const at = row.event === 'skip' ? reason.indexOf(between) : -1
    return at < 0 ? [] : [{ what: reason.slice(0, at), why: reason.slice(at + between.length) }]
  })
}

const jobName = (name: string, environment: string) => `the job ${name} in ${environment}`

/** What a step is called in the journal. */
function called(step: Step): string {
  switch (step.kind) {
    case 'pause':
      return step.name || `the pause of ${step.seconds} seconds`
    case 'other':
      return step.type === 'job' ? jobName(step.name, step.environment) : step.name || `the ${step.type}`
    default:
      return ''
  }
}

/** Takes a step from the parts that were left out, and says why it was; null if it was not. What may not be left out has not been. */
export function take(step: Step, parts: Left[]): string | null {
  if ((step.kind !== 'pause' && step.kind !== 'other') || !step.mayBeLeft) return null
  const name = called(step)
  const at = parts.findIndex((p) => p.what === name)
  return at < 0 ? null : parts.splice(at, 1)[0]!.why
}

/** Takes the jobs before and after a deployment that were left out, not those of steps of their own. */
export function takeJobs(step: Extract<Step, { kind: 'deploy' }>, parts: Left[]): Left[] {
  const names = (step.jobs ?? []).map((name) => jobName(name, step.environment))
  const theirs = parts.filter((p) => names.includes(p.what))
  for (const one of theirs) parts.splice(parts.indexOf(one), 1)
  return theirs
}
