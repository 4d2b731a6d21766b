// What the server finds wrong with a configuration as a whole: the form says it once.
import { renderToStaticMarkup } from 'react-dom/server'
import { MemoryRouter } from 'react-router'
import { expect, test, vi } from 'vitest'
import { Refused } from '../src/api/client'
import { EnvironmentForm } from '../src/pages/new-environment'
import { ChangeForm } from '../src/parts/binding'
import { ChecksForm } from '../src/parts/checks'
import { Promote } from '../src/parts/promote'

const schema = { type: 'object', properties: { region: { type: 'string' } } }
const drivers = [{ ref: 'made-up@1', digest: 'd', supportedPipelineSteps: [], environmentSchema: schema, applicationEnvironmentSchema: schema }]
const set = { id: 'set_1', name: 'set 1', entries: [], createdAt: '2026-11-29T04:00:00Z' }
const app = { versionSets: { nodes: [set] }, newestVersionSet: set, flowDefinition: { definition: { inputs: schema } }, environments: [], viewerCan: [{ action: 'createRollout', allowed: true, reason: null }], activeRollout: null, rolloutPolicy: {} }
const answers: Record<string, unknown> = { Drivers: { drivers }, ChecksSchema: { checksSchema: schema }, Sets: { application: app } }
const refused = vi.hoisted(() => ({ error: null as unknown }))

vi.mock('../src/api/hooks', () => ({
  useAsk: (operation: { name: string }) => ({ data: answers[operation.name] }),
  useChange: () => ({ error: refused.error, isPending: false, mutate: () => {} }),
}))
vi.mock('../src/parts/preview', () => ({ WouldCommit: () => null }))

const environment = { id: 'environment_1', name: 'staging', description: '', driverBindings: [{ driverRef: 'made-up@1', driverConfig: {}, version: 1 }], checks: {} } as never
const nothing = () => {}

test.each([
  ['a new environment', 'driverConfig', <EnvironmentForm done={nothing} />],
  ['an environment that is changed', 'driverConfig', <ChangeForm environment={environment} drivers={drivers as never} onClose={nothing} />],
  ['required checks', 'checks', <ChecksForm environment={environment} onClose={nothing} />],
  ['inputs of a rollout', 'inputs', <Promote application="shop" onClose={nothing} />],
])('%s', (_, field, form) => {
  const drawn = (path: string[]) => {
    refused.error = new Refused([{ field: path, message: 'these two exclude each other', code: 'INVALID' } as never])
    return renderToStaticMarkup(<MemoryRouter>{form}</MemoryRouter>).split(/these two exclude each other/i).length - 1
  }
  expect(drawn([field])).toBe(1)
  expect(drawn([field, 'region'])).toBe(1)
  expect(drawn(['elsewhere'])).toBe(1)
})
