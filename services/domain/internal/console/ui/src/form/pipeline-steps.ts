// A pipeline while it is being written: steps as the document has them (pkg/flow), each with a key of its own so that it stays the
// same step when it moves. Whatever a step has that no control shows is kept.
import { isRecord, type Finding, type Json } from './schema'

export interface Step {
  key: string
  /** As in the document; a deploy step's config is what was typed, not what is sent. */
  body: Json
}

export type StepType = 'deploy' | 'approval' | 'pause' | 'analysis'

let made = 0
const key = () => `step-${++made}`

export function newDeploy(environment: string, services: string[]): Step {
  // A driver whose form has no list of services drops this as it does everything that it does not know.
  return { key: key(), body: { type: 'deploy', environment, gates: [25, 50, 100].map((weight) => ({ weight })), config: { services: services.map((service) => ({ service })) } } }
}

export function newStep(type: Exclude<StepType, 'deploy'>, steps: Step[] = []): Step {
  switch (type) {
    case 'approval':
      return { key: key(), body: { type, name: unusedName('approval', steps), reason: '' } }
    case 'pause':
      return { key: key(), body: { type, duration: 600 } }
    case 'analysis':
      return { key: key(), body: { type, config: {} } }
  }
}

/** A name that no step and no environment has: approval, approval-2, … The gate that it becomes is called so everywhere. */
function unusedName(base: string, steps: Step[]): string {
  const used = new Set(steps.flatMap((s) => [s.body.name, s.body.environment]))
  for (let n = 1; ; n++) {
    const name = n === 1 ? base : `${base}-${n}`
    if (!used.has(name)) return name
  }
}

export function stepsOf(document: unknown): Step[] {
  const steps = isRecord(document) && Array.isArray(document.steps) ? document.steps : []
  return steps.map((s) => ({ key: key(), body: isRecord(s) ? s : { type: String(s) } }))
}

export const environmentOf = (step: Step): string => (step.body.type === 'deploy' && typeof step.body.environment === 'string' ? step.body.environment : '')

/** What a step is called, for people. */
export function titleOf(step: Step): string {
  const { type, name } = step.body
  if (type === 'deploy') return environmentOf(step) || 'an environment'
  if (typeof name === 'string' && name !== '') return name
  if (type === 'job') return isRecord(step.body.job) && typeof step.body.job.name === 'string' ? step.body.job.name : 'Job'
  return type === 'approval' ? 'Approval' : type === 'pause' ? 'Pause' : type === 'analysis' ? 'Analysis' : String(type)
}

/** The steps with the one at from at the place to; places beyond the ends are the ends. */
export function moved(steps: Step[], from: number, to: number): Step[] {
  const next = [...steps]
  const [one] = next.splice(from, 1)
  if (!one) return steps
  next.splice(Math.max(0, Math.min(next.length, to)), 0, one)
  return next
}

export function inserted(steps: Step[], at: number, step: Step): Step[] {
  return [...steps.slice(0, at), step, ...steps.slice(at)]
}

export function documentOf(steps: Step[], configOf: (step: Step) => unknown): { steps: Json[] } {
  return { steps: steps.map((s) => (s.body.type === 'deploy' ? { ...s.body, config: configOf(s) } : s.body)) }
}

export interface Located {
  /** The step that they are about; -1 for the pipeline as a whole. */
  step: number
  finding: Finding
}

/** Findings of the server, with the step that each is about and the path inside it. */
export function located(problems: Array<{ pointer: string; message: string }>): Located[] {
  return problems.map(({ pointer, message }) => {
    const path = pointer.split('/').slice(1).map((p) => p.replaceAll('~1', '/').replaceAll('~0', '~'))
    const step = path[0] === 'steps' && /^\d+$/.test(path[1] ?? '') ? Number(path[1]) : -1
    return { step, finding: { path: step < 0 ? path : path.slice(2), message } }
  })
}
