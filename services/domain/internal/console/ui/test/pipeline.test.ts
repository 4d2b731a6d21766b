// The pipeline editor loses nothing: what it does not edit is what it was, in order, whichever view it is edited in.
import { describe, expect, test } from 'vitest'
import { configOf, draftOf, isPipeline, moved, shownAs, titleOf, writtenIn, type Draft, type View } from '../src/form/pipeline-steps'
import type { Json, Schema } from '../src/form/schema'
import { machines } from './drivers'
import { declared, everything, flow, namesIn } from './pipeline'

const asIs = (schema: Schema = true) => (step: Draft['steps'][number]) => configOf(schema, step)
const text = (document: unknown) => JSON.stringify(document)
const views: View[] = ['canvas', 'list', 'json']

test('the document of these tests has every member that the schema knows', () => {
  const names = namesIn(everything())
  expect([...declared(flow)].filter((name) => !names.has(name))).toEqual([])
  expect(everything().steps.map((s) => s.type)).toEqual(['deploy', 'pause', 'approval', 'analysis', 'job'])
})

describe.each(views)('in the view %s', (view) => {
  const opened = () => shownAs(draftOf(everything()), view, asIs())

  test('a pipeline is unchanged when nothing is edited', () => {
    expect(text(writtenIn(opened(), asIs()))).toBe(text(everything()))
    if (view === 'json') expect(opened().text).toBe(JSON.stringify(everything(), null, 2))
  })

  test('a step that moves changes nothing else', () => {
    const { steps: [first, ...others], ...rest } = everything()
    const order = [others[0], first, ...others.slice(1)] as Json[]
    const want = Object.fromEntries(Object.keys(everything()).map((name) => [name, name === 'steps' ? order : rest[name]]))
    const draft = opened()
    const edited = view === 'json' ? { ...draft, text: JSON.stringify(want) } : { ...draft, steps: moved(draft.steps, 0, 1) }
    expect(text(writtenIn(edited, asIs()))).toBe(text(want))
    for (const other of views) expect(text(writtenIn(shownAs(edited, other, asIs()), asIs()))).toBe(text(want))
  })

  test('a field that is edited is all that differs', () => {
    const want = everything()
    want.steps[0] = { ...want.steps[0], environment: 'elsewhere' }
    const draft = opened()
    const edited = view === 'json' ? { ...draft, text: JSON.stringify(want) } : { ...draft, steps: draft.steps.map((s, i) => (i === 0 ? { ...s, body: { ...s.body, environment: 'elsewhere' } } : s)) }
    for (const other of views) expect(text(writtenIn(shownAs(edited, other, asIs()), asIs()))).toBe(text(want))
  })
})

test('a config that fits the form of its driver is sent as it was stored, without the defaults of the form', () => {
  const stored = { steps: [{ type: 'deploy', environment: 'a', config: { login: { user: 'me' }, hosts: [{ name: 'a' }], labels: { team: 'x' }, newer: 1 } }] }
  const draft = draftOf(stored)
  expect(text(writtenIn(draft, asIs(machines)))).toBe(text(stored))
  const step = draft.steps[0]!
  const changed = { ...step, body: { ...step.body, config: { ...(step.body.config as Json), login: undefined, zone: 'b' } } }
  expect(configOf(machines, changed)).toEqual({ login: { port: 22 }, hosts: [{ name: 'a' }], labels: { team: 'x' }, newer: 1, zone: 'b' })
})

test('steps of an unknown type are kept, and steps have names', () => {
  const document = { steps: [{ type: 'deploy', environment: 'a', config: {} }, { type: 'approval', name: 'before-b' }, { type: 'dance', tempo: 3 }] }
  expect(draftOf(document).steps.map((s) => titleOf(s))).toEqual(['a', 'before-b', 'dance'])
  expect(draftOf(document).steps.map((s) => titleOf(s, (name) => name.toUpperCase()))).toEqual(['A', 'before-b', 'dance'])
  expect(text(writtenIn(draftOf(document), asIs()))).toBe(text(document))
})

test('what cannot be shown as steps stays JSON, and is not lost', () => {
  for (const odd of ['no pipeline', { stages: [] }, { steps: ['a'] }, { checks: {}, steps: {} }]) {
    expect(isPipeline(odd)).toBe(false)
    const draft = draftOf(odd)
    expect([draft.view, writtenIn(draft, asIs())]).toEqual(['json', odd])
    expect(shownAs(draft, 'canvas', asIs())).toBe(draft)
  }
  const typing = { ...shownAs(draftOf(everything()), 'json', asIs()), text: '{' }
  expect(writtenIn(typing, asIs())).toBeUndefined()
  expect(shownAs(typing, 'list', asIs())).toBe(typing)
  expect(draftOf(null)).toMatchObject({ view: 'canvas', steps: [], text: null })
})

test('a look at the JSON leaves the steps the same ones, and the config that was typed', () => {
  const draft = draftOf(everything())
  expect(shownAs(shownAs(draft, 'json', asIs()), 'list', asIs()).steps).toBe(draft.steps)
})
