// A pipeline while it is being written: the document (pkg/flow) with its steps beside it, each with a key of its own so that it stays the
// same step when it moves. Whatever the document, a step or anything in them has that no control shows is kept, in its place.
import { isRecord, prune, validate, withDefaults, type Finding, type Json, type Schema } from './schema'

export interface Step {
  key: string
  /** As in the document; a deploy step's config is what was typed, not what is sent. */
  body: Json
  /** The config that the document had, which is sent as it is while nobody has changed it. */
  stored?: unknown
}

export type View = 'canvas' | 'list' | 'json'

export interface Draft {
  /** The document that it began with; its steps are those below. */
  document: Json
  steps: Step[]
  view: View
  /** What was typed in the view json; null in the others. */
  text: string | null
}

export type StepType = 'deploy' | 'approval' | 'pause' | 'analysis' | 'job'

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
    case 'job':
      return { key: key(), body: { type, environment: environmentsBefore(steps, steps.length).at(-1) ?? '', job: { name: unusedName('job', steps), template: '' } } }
  }
}

/** A name that no step and no environment has: approval, approval-2, … The gate that it becomes is called so everywhere. */
function unusedName(base: string, steps: Step[]): string {
  const used = new Set(steps.flatMap((s) => [s.body.name, s.body.environment, isRecord(s.body.job) ? s.body.job.name : undefined]))
  for (let n = 1; ; n++) {
    const name = n === 1 ? base : `${base}-${n}`
    if (!used.has(name)) return name
  }
}

/** Whether a value can be shown as steps: otherwise it is JSON that only its author can correct. */
export function isPipeline(document: unknown): document is Json & { steps: Json[] } {
  return isRecord(document) && Array.isArray(document.steps) && document.steps.every(isRecord)
}

/** A draft that begins with a document. One that cannot be shown as steps is shown as it is; none is an empty one. */
export function draftOf(document: unknown, view: View = 'canvas'): Draft {
  const whole = document ?? { steps: [] }
  if (!isPipeline(whole)) return { document: {}, steps: [], view: 'json', text: textOf(whole) }
  return { document: whole, steps: whole.steps.map((body) => ({ key: key(), body, stored: body.config })), view, text: null }
}

export const environmentOf = (step: Step): string => (step.body.type === 'deploy' && typeof step.body.environment === 'string' ? step.body.environment : '')

/** The environments that the steps before one deploy to. */
export const environmentsBefore = (steps: Step[], index: number): string[] => steps.slice(0, index).map(environmentOf).filter((name) => name !== '')

/** What a step is called, for people; called is what they call an environment of a name. */
export function titleOf(step: Step, called: (environment: string) => string = (name) => name): string {
  const { type, name } = step.body
  if (type === 'deploy') return called(environmentOf(step)) || 'an environment'
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

type ConfigOf = (step: Step) => unknown

/** The whole document, with the steps as they are now. */
export function documentOf({ document, steps }: Pick<Draft, 'document' | 'steps'>, configOf: ConfigOf): Json {
  return { ...document, steps: steps.map((s) => (s.body.type === 'deploy' ? { ...s.body, config: configOf(s) } : s.body)) }
}

/** A step's config as it is sent: as it was stored, or as the driver's form has it once it was changed or does not fit the form any more. */
export function configOf(schema: Schema, step: Step): unknown {
  const config = step.body.config ?? {}
  if (config === step.stored && validate(schema, schema, config).length === 0) return config
  return prune(schema, schema, withDefaults(schema, schema, config))
}

/** What a draft comes to; undefined while its text is no JSON. */
export function writtenIn(draft: Draft, configOf: ConfigOf): unknown {
  return draft.text === null ? documentOf(draft, configOf) : parse(draft.text)
}

/** The draft in another view. What was typed as JSON stays there until it can be shown as steps. */
export function shownAs(draft: Draft, view: View, configOf: ConfigOf): Draft {
  if (view === draft.view) return draft
  const document = writtenIn(draft, configOf)
  if (view === 'json') return { ...draft, view, text: textOf(document) }
  if (draft.text === null) return { ...draft, view }
  const before = documentOf(draft, configOf)
  if (draft.text === textOf(before)) return { ...draft, view, text: null }
  return isPipeline(document) ? draftOf(document, view) : draft
}

const textOf = (document: unknown) => JSON.stringify(document, null, 2)

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
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
