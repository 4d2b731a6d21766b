// The template "deploy every new set to staging": a version trigger with its defaults that goes to the first environment of the pipeline.

export interface EverySet {
  environment: string
  name: string
  config: { until: string }
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {}
}

/** Null for a pipeline that deploys to no environment, as a runbook, whose jobs may have one, and for an application that has a trigger beside the manual one. */
export function everySet(definition: unknown, kinds: string[]): EverySet | null {
  if (kinds.some((k) => k !== 'MANUAL')) return null
  const steps = record(definition).steps
  const environment = (Array.isArray(steps) ? steps : [])
    .map(record)
    .filter((s) => s.type === 'deploy')
    .map((s) => s.environment)
    .find((e) => typeof e === 'string' && e !== '')
  if (typeof environment !== 'string') return null
  const name = `deploy-${environment}`
  return { environment, name: /^[a-z0-9][a-z0-9-]{0,62}$/.test(name) ? name : 'deploy-every-set', config: { until: environment } }
}
