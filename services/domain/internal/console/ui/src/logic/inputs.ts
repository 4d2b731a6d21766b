// The inputs that a pipeline declares, for forms and for people.
import { isRecord, type Json, type SchemaObject } from '../form/schema'

/** The schema of the form for a pipeline's inputs; null if it declares none. What has a default need not be given. */
export function inputsSchema(definition: unknown): SchemaObject | null {
  const declared = isRecord(definition) ? definition['inputs'] : null
  return isRecord(declared) && isRecord(declared['properties']) ? { ...(declared as SchemaObject), type: 'object' } : null
}

/** The inputs of a rollout, in order. */
export function givenInputs(inputs: unknown): [string, string][] {
  if (!isRecord(inputs)) return []
  return Object.entries(inputs as Json)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)])
}
