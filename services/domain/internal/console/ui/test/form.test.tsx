/// <reference types="node" />
// The renderer, as the HTML that it makes.
import { readFileSync } from 'node:fs'
import { renderToStaticMarkup } from 'react-dom/server'
import { describe, expect, test } from 'vitest'
import { controlOf, SchemaForm } from '../src/form/SchemaForm'
import { humanise, optionWords, wordsFor } from '../src/form/copy'
import { agentName, agentNumber, agentValue, ofKinds } from '../src/form/offers'
import { fields, isRecord, prune, validate, withDefaults, withField, type Finding, type Json, type Schema, type SchemaObject } from '../src/form/schema'
import { boats, functions, machines, ports } from './drivers'

const credentials = [{ name: 'hub', kind: 'registry' }, { name: 'manifests', kind: 'git' }, { name: 'api', kind: 'http' }]
const render = (root: Schema, value: Json, findings: Finding[] = [], driver = 'made-up@1') =>
  renderToStaticMarkup(<SchemaForm context={{ root, driver, findings, agents: [{ number: 42, name: 'eu-west' }], credentials }} value={withDefaults(root, root, value)} onChange={() => {}} />)
const controls = (html: string) => [...html.matchAll(/<(input|select|textarea)[^>]*data-field="([^"]*)"[^>]*>/g)].map(([tag, name, field]) => `${field}:${name === 'input' ? /type="(\w+)"/.exec(tag)?.[1] : name}`)

/** The form's value after a control was changed: every group on the way to it is changed with it, as the renderer does, and the page draws the form. */
function changed(root: Schema, value: Json, path: string[], next: unknown): Json {
  const within = (schema: Schema, of: Json, [name = '', ...rest]: string[]): Json => {
    const field = fields(root, schema, of).find((f) => f.name === name)!
    const inner = of[name]
    return withField(root, schema, of, field, rest.length === 0 ? next : within(field.schema, isRecord(inner) ? inner : {}, rest))
  }
  return prune(root, root, withDefaults(root, root, within(root, value, path))) as Json
}

/** The form of a driver that Lockstep has. */
const bundle = (driver: string): Schema => JSON.parse(readFileSync(`../../../../../pkg/driver/bundles/${driver}/v1/application_environment.json`, 'utf8'))

describe('a driver that nobody has written code for', () => {
  test('boats: every widget, and one that is unknown', () => {
    const html = render(boats, {})
    expect(controls(html)).toEqual(['harbour:text', 'size:select', 'knots:number', 'night:checkbox', 'pilot:text'])
    expect(html).toContain('min="1"')
    expect(html).toContain('max="40"')
    expect(html).toContain('>Very large<')
    expect(html).toContain('<option value="eu-west"></option>')
    expect(html).not.toContain('NEVER SHOWN')
  })
  test('ports: agents and credentials by name, of the kinds that fit, code in its language, and a reference (D53)', () => {
    const html = render(ports, { pilot: 42, login: 'hub', chart: 'a: 1', key: 'hunter2' }, [])
    expect(controls(html)).toEqual(['pilot:text', 'key:text', 'login:text', 'any_login:text', 'chart:textarea'])
    expect(/<input[^>]*data-field="pilot"[^>]*>/.exec(html)?.[0]).toContain('value="eu-west"')
    const offered = (field: string) => {
      const list = new RegExp(`data-field="${field}"[^>]*list="([^"]*)"`).exec(html)?.[1] ?? 'none'
      return [...(html.split(`<datalist id="${list}">`)[1]?.split('</datalist>')[0] ?? '').matchAll(/value="([^"]*)"/g)].map((m) => m[1])
    }
    expect(offered('pilot')).toEqual(['eu-west'])
    expect(offered('login')).toEqual(['hub', 'api'])
    expect(offered('any_login')).toEqual(['hub', 'manifests', 'api'])
    expect(/<textarea[^>]*data-field="chart"[^>]*>/.exec(html)?.[0]).toContain('data-language="application/yaml"')
    expect(html).toContain('>YAML<')
    expect(validate(ports, ports, { pilot: 42, key: 'hunter2' }).map((f) => f.path.join('/'))).toEqual(['key'])
    expect(validate(ports, ports, { pilot: 42, key: 'vault:secret/data/shop#key', keys: ['env:A', 'hunter2'] }).map((f) => f.path.join('/'))).toEqual(['keys/1'])
    expect(JSON.stringify(validate(ports, ports, { pilot: 42, key: 'hunter2' }))).not.toContain('hunter2')
  })
  test('an agent is entered by its name; one that is not known here, by its number', () => {
    const agents = [{ number: 42, name: 'eu-west' }, { number: 7, name: '42' }]
    expect([agentNumber(agents, ' eu-west '), agentNumber(agents, '9'), agentNumber(agents, '42'), agentNumber(agents, 'eu'), agentNumber(agents, '')]).toEqual([42, 9, 7, undefined, undefined])
    expect([agentName(agents, 42), agentName(agents, 9), agentName(agents, undefined), agentName(agents, 'eu')]).toEqual(['eu-west', 'number 9', '', 'eu'])
    expect([agentNumber(agents, 'number 42'), agentNumber(agents, agentName(agents, 9))]).toEqual([42, 9])
  })

  test('an agent that does not exist is no empty field: it is not saved (D53)', () => {
    const agents = [{ number: 42, name: 'eu-west' }]
    const pilot: Schema = { type: 'object', properties: { pilot: { type: 'integer', minimum: 1, gitlabUi: { widget: 'agent_picker' } } } }
    expect([agentValue(agents, ' eu-west '), agentValue(agents, ' '), agentValue(agents, 'eu')]).toEqual([42, undefined, 'eu'])
    expect(validate(pilot, pilot, { pilot: agentValue(agents, 'eu') }).map((f) => f.path.join('/'))).toEqual(['pilot'])
    expect(validate(pilot, pilot, { pilot: agentValue(agents, 'eu-west') })).toEqual([])
    expect(ofKinds(credentials, 'git').map((c) => c.name)).toEqual(['manifests'])
  })
  test('functions: only the active branch', () => {
    expect(controls(render(functions, { runtime: 'managed' }))).toEqual(['runtime:select', 'public:checkbox'])
    expect(controls(render(functions, { runtime: 'container', registry: 'own', public: true }))).toEqual(['runtime:select', 'public:checkbox', 'image:text', 'registry:select', 'secret_name:text', 'domain:text'])
  })
  test('machines: lists, depth, names that people choose, and JSON for what has no control', () => {
    expect(controls(render(machines, { hosts: [{ name: 'a' }, {}] }))).toEqual(['hosts/0/name:text', 'hosts/0/spare:checkbox', 'hosts/1/name:text', 'hosts/1/spare:checkbox', 'login/user:text', 'login/port:number', 'cycle:textarea'])
  })
  test('values by name: each has its name and its control, and what is wrong with it', () => {
    const html = render(machines, { hosts: [], labels: { team: 'shop', tier: 'x' } }, [{ path: ['labels', 'tier'], message: 'Not this one.' }])
    expect(controls(html).filter((c) => c.startsWith('labels'))).toEqual(['labels/team:text', 'labels/tier:text'])
    expect(html).toMatch(/Name .*value="team".*>Value .*value="shop"/s)
    expect(/<input[^>]*data-field="labels\/tier"[^>]*>/.exec(html)?.[0]).toContain('value="x"')
    expect(html).toContain('Not this one.')
  })
  test('JSON shows what is wrong somewhere in it', () => {
    expect(render(machines, { hosts: [], cycle: { a: [1] } }, [{ path: ['cycle', 'a', '0'], message: 'Not this one.' }])).toContain('a › 0: Not this one.')
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
  expect(of({ type: 'string', gitlabUi: { widget: 'agent_picker' } })).toBe('text')
  expect(of({ type: 'integer', gitlabUi: { widget: 'credential_picker' } })).toBe('number')
  expect(of({ type: 'boolean', gitlabUi: { widget: 'secret_reference' } })).toBe('checkbox')
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
    const given = { namespace: 'shop', repository_url: 'r', files: ['a'] }
    expect(said(changed(root, given, ['helm', 'chart'], 'c'))).toHaveLength(1)
    let value = changed(root, changed(root, given, ['helm', 'chart'], 'c'), ['helm', 'chart'], undefined)
    expect(said(value)).toEqual([])
    value = changed(root, value, ['files'], [])
    expect(value).toEqual({ namespace: 'shop', repository_url: 'r' })
    expect(changed(root, value, ['labels'], []).labels).toEqual([]) // a list that may be empty
    const needed: Schema = { type: 'object', required: ['helm'], properties: { helm: { type: 'object', properties: { chart: text } } } }
    expect(changed(needed, {}, ['helm', 'chart'], undefined)).toEqual({ helm: {} })
  })
  test('an alternative by itself is not there either, once it is empty', () => {
    const either: Schema = { type: 'object', oneOf: [{ required: ['managed'] }, { required: ['hosts'] }], properties: { managed: { type: 'boolean' }, hosts: { type: 'array', items: text } } }
    const untouched = changed(either, changed(either, {}, ['managed'], true), ['managed'], false)
    expect(untouched).toEqual({})
    expect(changed(either, { hosts: ['a'] }, ['hosts'], [])).toEqual({})
  })
})

describe('Kubernetes, whose alternatives are groups', () => {
  const root = bundle('kubernetes')
  const given = { namespace: 'shop', repository_url: 'https://git.example.com/shop.git', files: ['a.yaml'], services: [{ service: 'api', container: 'api' }] }
  const before = changed(root, given, ['namespace'], 'shop')
  const wrong = (value: Json) => validate(root, root, value)

  test.each([
    [['helm', 'skip_hooks'], true, false],
    [['helm', 'value_files'], [undefined], []],
    [['helm', 'chart'], 'oci://registry.example.com/shop', undefined],
    [['kustomize', 'path'], 'overlay', ''],
  ])('%s, set and emptied again, leaves nothing', (path, set, unset) => {
    expect(wrong(before)).toEqual([])
    const once = changed(root, before, path, set)
    expect(wrong(once).map((f) => f.path)).toContainEqual([])
    expect(changed(root, once, path, unset)).toEqual(before)
  })
  test('what is still set keeps its group', () => {
    let value = changed(root, before, ['helm', 'skip_hooks'], true)
    value = changed(root, value, ['helm', 'value_files'], [])
    expect(value.helm).toEqual({ skip_hooks: true, value_files: [] })
  })
  test('a group that exists can be removed', () => {
    const html = render(root, { ...before, helm: { chart: 'c' } })
    expect(html).toContain('Remove Helm')
    expect(html).not.toContain('Remove Kustomize')
    expect(html).not.toContain('Remove Images')
    expect(changed(root, { ...before, helm: { chart: 'c' } }, ['helm'], undefined)).toEqual(before)
  })
  test('the alternatives have the names that their fields have', () => {
    const html = render(root, {}, wrong({ namespace: 'shop', services: given.services, helm: {} }), 'kubernetes@1')
    expect(html).toContain('Exactly one of these is needed: Chart in a registry and Version; Folder of a chart in the repository.')
    expect(render(root, {}, wrong({ namespace: 'shop', services: given.services }), 'kubernetes@1')).toContain(
      'Exactly one of these is needed: Repository of the manifests and Files with manifests; Repository of the manifests and Kustomize; Helm.',
    )
  })
})

test('what is not empty is kept: what was chosen, what contradicts a default, what a text of JSON has', () => {
  const root: Schema = {
    type: 'object',
    properties: {
      login: { type: 'object', properties: { port: { type: 'integer', default: 22 }, strict: { type: 'boolean', default: true }, user: { type: 'object', properties: { name: { type: 'string' } } } } },
      labels: { type: 'object' },
      runtime: { type: 'object', if: { required: ['kind'] }, then: {}, else: { properties: { size: false } }, properties: { kind: { type: 'string' }, size: { type: 'integer' } } },
    },
  }
  expect(changed(root, {}, ['login', 'port'], 22)).toEqual({ login: { port: 22 } })
  expect(changed(root, {}, ['login', 'strict'], false)).toEqual({ login: { strict: false } })
  expect(changed(root, {}, ['labels'], { a: false })).toEqual({ labels: { a: false } })
  expect(changed(root, { login: { user: { name: 'a' } } }, ['login', 'user', 'name'], undefined)).toEqual({})
  expect(changed(root, { runtime: { kind: 'a', size: 3 } }, ['runtime', 'kind'], undefined)).toEqual({}) // size is not shown any more
})

test('what has a default can be emptied: it does not come back', () => {
  const root: Schema = {
    type: 'object',
    properties: {
      regions: { type: 'array', minItems: 1, default: ['eu', 'us'], items: { type: 'string' } },
      login: { type: 'object', default: { user: 'root' }, properties: { user: { type: 'string' } } },
    },
  }
  const first = withDefaults(root, root, {}) as Json
  const one = changed(root, first, ['regions'], ['us'])
  expect(one.regions).toEqual(['us'])
  const none = changed(root, one, ['regions'], [])
  expect(none.regions).toEqual([])
  expect(validate(root, root, none)).toEqual([{ path: ['regions'], message: 'At least 1.' }])
  expect(changed(root, first, ['login', 'user'], undefined).login).toEqual({})
  expect(render(root, first)).not.toContain('Remove Login')
})

test('what is wrong with an item as a whole, and everything that is wrong with the whole, is shown', () => {
  const html = render(machines, { hosts: [{ name: 'a' }, {}] }, [
    { path: ['hosts', '1'], message: 'This host is a copy.' },
    { path: [], message: 'Too many machines.' },
    { path: [], message: 'No gateway.' },
    { path: [], message: 'No gateway.' },
  ])
  for (const message of ['This host is a copy.', 'Too many machines.', 'No gateway.']) expect(html.split(message)).toHaveLength(2)
})

test('parts of a list have an order, plain values have none', () => {
  const root: Schema = {
    type: 'object',
    properties: { jobs: { type: 'array', items: { type: 'object', properties: { name: { type: 'string' } } } }, paths: { type: 'array', items: { type: 'string' } } },
  }
  const html = render(root, { jobs: [{ name: 'a' }, { name: 'b' }, { name: 'c' }], paths: ['x', 'y'] })
  const moves = [...html.matchAll(/<button type="button" class="quiet"( disabled="")?>(Move[^<]*)</g)].map(([, disabled, text]) => `${text}${disabled ? ' off' : ''}`)
  expect(moves).toEqual(['Move 1 up off', 'Move 1 down', 'Move 2 up', 'Move 2 down', 'Move 3 up', 'Move 3 down off'])
  expect(render(root, { jobs: [{ name: 'a' }] })).not.toContain('Move 1')
})
