// The renderer, as the HTML that it makes.
import { renderToStaticMarkup } from 'react-dom/server'
import { describe, expect, test } from 'vitest'
import { controlOf, SchemaForm } from '../src/form/SchemaForm'
import { humanise, optionWords, wordsFor } from '../src/form/copy'
import { fields, validate, withDefaults, withField, type Finding, type Json, type Schema, type SchemaObject } from '../src/form/schema'
import { boats, functions, machines } from './drivers'

const render = (root: Schema, value: Json, findings: Finding[] = []) =>
  renderToStaticMarkup(<SchemaForm context={{ root, driver: 'made-up@1', findings, agents: [{ number: 42, name: 'eu-west' }] }} value={withDefaults(root, root, value)} onChange={() => {}} />)
const controls = (html: string) => [...html.matchAll(/<(input|select|textarea)[^>]*data-field="([^"]*)"[^>]*>/g)].map(([tag, name, field]) => `${field}:${name === 'input' ? /type="(\w+)"/.exec(tag)?.[1] : name}`)

describe('a driver that nobody has written code for', () => {
  test('boats: every widget, and one that is unknown', () => {
    const html = render(boats, {})
    expect(controls(html)).toEqual(['harbour:text', 'size:select', 'knots:number', 'night:checkbox', 'pilot:number'])
    expect(html).toContain('min="1"')
    expect(html).toContain('max="40"')
    expect(html).toContain('>Very large<')
    expect(html).toContain('<option value="42">eu-west</option>')
    expect(html).not.toContain('NEVER SHOWN')
  })
  test('functions: only the active branch', () => {
    expect(controls(render(functions, { runtime: 'managed' }))).toEqual(['runtime:select', 'public:checkbox'])
    expect(controls(render(functions, { runtime: 'container', registry: 'own', public: true }))).toEqual(['runtime:select', 'public:checkbox', 'image:text', 'registry:select', 'secret_name:text', 'domain:text'])
  })
  test('machines: lists, depth, and JSON for what has no control', () => {
    expect(controls(render(machines, { hosts: [{ name: 'a' }, {}] }))).toEqual(['hosts/0/name:text', 'hosts/0/spare:checkbox', 'hosts/1/name:text', 'hosts/1/spare:checkbox', 'login/user:text', 'login/port:number', 'labels:textarea', 'cycle:textarea'])
  })
  test('what is wrong is shown at its field', () => {
    const html = render(machines, { hosts: [{ name: 'A' }] }, [{ path: ['hosts', '0', 'name'], message: 'No capitals.' }])
    expect(/data-field="hosts\/0\/name"/.exec(html)).not.toBeNull()
    expect(html.match(/aria-invalid="true"/g)).toHaveLength(1)
    expect(html).toContain('No capitals.')
  })
})

test('a widget that does not fit the type gives the type’s own control', () => {
  const of = (s: SchemaObject) => controlOf(s)
  expect(of({ type: 'boolean', gitlabUi: { widget: 'agent_picker' } })).toBe('checkbox')
  expect(of({ type: 'boolean', gitlabUi: { widget: 'code' } })).toBe('checkbox')
  expect(of({ type: 'string', gitlabUi: { widget: 'code' } })).toBe('code')
  expect(of({ type: 'integer', gitlabUi: { widget: 'text' } })).toBe('number')
  expect(of({ type: 'string', gitlabUi: { widget: 'select' } })).toBe('text')
  expect(of({})).toBe('json')
})

test('words: by driver, field and token; readable names otherwise', () => {
  expect(wordsFor('argo-rollouts@2', ['cluster_agent_id']).label).toBe('Cluster agent')
  expect(wordsFor('argo-rollouts@1', ['services', '3', 'file']).label).toBe('Manifest file')
  expect(wordsFor('made-up@1', ['cluster_agent_id']).label).toBe('Cluster agent id')
  expect(optionWords(wordsFor('argo-rollouts@1', ['load_balancer_type']), 'alb')).toBe('AWS ALB')
  expect(humanise('maxSurge')).toBe('Max surge')
})

test('a text of many lines, such as a template, has room for them', () => {
  const html = render({ type: 'object', properties: { template: { type: 'string', gitlabUi: { widget: 'code' } } } }, { template: 'a:\n  b' })
  expect(controls(html)).toEqual(['template:textarea'])
  expect(html).toContain('a:\n  b</textarea>')
})

describe('alternatives', () => {
  const text = { type: 'string' }
  const root: Schema = {
    type: 'object',
    required: ['namespace'],
    oneOf: [{ required: ['repository_url', 'files'] }, { required: ['helm'] }],
    properties: {
      namespace: text,
      branch: text,
      repository_url: text,
      files: { type: 'array', minItems: 1, items: text },
      helm: { type: 'object', properties: { chart: text, version: text } },
      prune: { type: 'boolean' },
      deadline: { type: 'number' },
      labels: { type: 'array', items: text },
    },
  }
  const said = (value: Json) => validate(root, root, value).map((f) => f.message)

  test('what is needed is named where the form begins', () => {
    const message = 'Exactly one of these is needed: Repository url and Files; Helm.'
    expect(said({ namespace: 'shop' })).toEqual([message])
    expect(said({ namespace: 'shop', repository_url: 'r', files: ['a'], helm: { chart: 'c' } })).toEqual([message])
    expect(said({ namespace: 'shop', helm: { chart: 'c' } })).toEqual([])
    const html = render(root, {}, [{ path: [], message }])
    expect(html.indexOf(message)).toBeGreaterThan(-1)
    expect(html.indexOf(message)).toBeLessThan(html.indexOf('data-field'))
  })
  test('the fields of alternatives are not folded away', () => {
    const html = render(root, {})
    const folded = html.indexOf('<details')
    expect(html.slice(folded)).toContain('4 optional settings')
    for (const name of ['namespace', 'repository_url', 'helm/chart']) expect(html.indexOf(`data-field="${name}"`)).toBeLessThan(folded)
    for (const name of ['branch', 'prune', 'deadline']) expect(html.indexOf(`data-field="${name}"`)).toBeGreaterThan(folded)
  })
  test('what was emptied again is no alternative', () => {
    const field = (name: string) => fields(root, root, {}).find((f) => f.name === name)!
    let value = withField({ namespace: 'shop', repository_url: 'r', files: ['a'] }, field('helm'), { chart: 'c' })
    expect(said(value)).toHaveLength(1)
    value = withField(value, field('helm'), { chart: undefined })
    expect(said(value)).toEqual([])
    value = withField(value, field('files'), [])
    expect(value.files).toBeUndefined()
    expect(withField(value, field('labels'), []).labels).toEqual([]) // a list that may be empty
    expect(withField({}, { ...field('helm'), required: true }, {}).helm).toEqual({})
  })
})
