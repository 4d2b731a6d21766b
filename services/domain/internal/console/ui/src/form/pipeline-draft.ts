// A pipeline while it is being written: what the form can show of a document, and the document that it makes.
import { readPipeline } from '../logic/pipeline'
import type { Json } from './schema'

export interface Stage {
  environment: string
  /** What an approval step before it says; null for none. */
  approval: string | null
  /** "25, 50, 100" */
  gates: string
  config: Json
}

export interface Draft {
  stages: Stage[]
  /** Whether the form can show everything that the document has; otherwise it is edited as it is. */
  readable: boolean
}

export function newStage(environment: string, services: string[]): Stage {
  // A driver whose form has no list of services drops this as it does everything that it does not know.
  return { environment, approval: null, gates: '25, 50, 100', config: { services: services.map((service) => ({ service })) } }
}

export function draftOf(document: unknown, environments: string[], services: string[]): Draft {
  if (document === undefined || document === null) return { readable: true, stages: environments.slice(0, 1).map((e) => newStage(e, services)) }
  const draft: Draft = { readable: true, stages: [] }
  let approval: string | null = null
  for (const step of readPipeline(document)) {
    if (step.kind === 'approval' && approval === null) approval = step.reason
    else if (step.kind === 'deploy') {
      if (step.approval || step.gates.some((g) => g.soak > 0 || g.approval)) draft.readable = false
      draft.stages.push({ environment: step.environment, approval, gates: step.gates.map((g) => g.weight).join(', '), config: (step.config ?? {}) as Json })
      approval = null
    } else draft.readable = false
  }
  if (approval !== null) draft.readable = false
  return draft
}

function weights(gates: string): number[] {
  return gates.split(/[\s,;%]+/).filter(Boolean).map(Number)
}

export function draftProblem(draft: Draft): string | null {
  if (draft.stages.length === 0) return 'A pipeline needs at least one environment.'
  for (const s of draft.stages) {
    const all = weights(s.gates)
    if (all.some((w, i) => !Number.isInteger(w) || w < 1 || w > 100 || w <= (all[i - 1] ?? 0))) return `Gates of ${s.environment}: expected whole numbers from 1 to 100 that rise.`
  }
  return null
}

export function documentOf(draft: Draft, configOf: (stage: Stage) => Json): unknown {
  return {
    steps: draft.stages.flatMap((s) => [
      ...(s.approval === null ? [] : [{ type: 'approval', name: `before-${s.environment}`, reason: s.approval }]),
      { type: 'deploy', environment: s.environment, gates: weights(s.gates).map((weight) => ({ weight })), config: configOf(s) },
    ]),
  }
}
