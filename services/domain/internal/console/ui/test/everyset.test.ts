import { describe, expect, it } from 'vitest'
import { everySet } from '../src/logic/everyset'

// D58: one click makes "deploy every new set to staging", for an application without triggers, with the first environment of its pipeline.
describe('everySet', () => {
  const pipeline = { steps: [{ type: 'approval', name: 'go' }, { type: 'deploy', environment: 'staging' }, { type: 'deploy', environment: 'production' }] }

  it('goes to the first environment of the pipeline', () => {
    expect(everySet(pipeline, ['MANUAL'])).toEqual({ environment: 'staging', name: 'deploy-staging', config: { until: 'staging' } })
  })

  it('is offered beside the manual trigger only', () => {
    expect(everySet(pipeline, ['MANUAL', 'SCHEDULE'])).toBeNull()
    expect(everySet(pipeline, [])).not.toBeNull()
  })

  it('is not offered without an environment', () => {
    for (const definition of [null, undefined, 'x', {}, { steps: 'x' }, { steps: [{ type: 'pause', duration: 1 }, null] }]) expect(everySet(definition, ['MANUAL'])).toBeNull()
  })

  it('is not offered for a runbook, and goes past jobs to what is deployed', () => {
    const job = { type: 'job', environment: 'tools' }
    expect(everySet({ steps: [job] }, [])).toBeNull()
    expect(everySet({ steps: [job, { type: 'deploy', environment: 'staging' }] }, [])?.environment).toBe('staging')
  })

  it('has a name that a trigger may have', () => {
    expect(everySet({ steps: [{ type: 'deploy', environment: 'a'.repeat(63) }] }, [])).toEqual({ environment: 'a'.repeat(63), name: 'deploy-every-set', config: { until: 'a'.repeat(63) } })
  })
})
