import { expect, test } from 'vitest'
import { validate, withDefaults } from '../src/form/schema'
import { givenInputs, inputsSchema } from '../src/logic/inputs'

const definition = {
  inputs: { required: ['region', 'dry_run'], properties: { region: { type: 'string', enum: ['eu', 'us'] }, dry_run: { type: 'boolean', default: true } } },
  steps: [],
}

test('the form of a new rollout comes from the inputs of the pipeline (R4-09)', () => {
  const schema = inputsSchema(definition)
  if (!schema) throw new Error('no form')
  const value = withDefaults(schema, schema, {})
  expect(value).toEqual({ dry_run: true })
  expect(validate(schema, schema, value)).toEqual([{ path: ['region'], message: 'Required.' }])
  expect(validate(schema, schema, { region: 'mars', dry_run: false })).toEqual([{ path: ['region'], message: 'Choose one of the options.' }])
  expect(validate(schema, schema, { region: 'eu', dry_run: false })).toEqual([])
})

test('a pipeline without inputs has no form', () => {
  expect(inputsSchema({ steps: [] })).toBeNull()
  expect(inputsSchema(undefined)).toBeNull()
})

test('the inputs of a rollout are shown in order, and texts as they are', () => {
  expect(givenInputs({ region: 'eu', count: 3, hosts: ['a', 'b'], dry_run: false })).toEqual([['count', '3'], ['dry_run', 'false'], ['hosts', '["a","b"]'], ['region', 'eu']])
  expect(givenInputs(null)).toEqual([])
})
