// The forms of a pipeline: every member that its schema knows has one, what is wrong is shown where it is, and nothing else changes.
import { renderToStaticMarkup } from 'react-dom/server'
import { describe, expect, test, vi } from 'vitest'
import { draftOf, environmentsBefore, newDeploy, newStep, type Step } from '../src/form/pipeline-steps'
import { fields, isRecord, partOf, prune, withField, type Finding, type Json, type Schema } from '../src/form/schema'
import { Rest, StepForm } from '../src/parts/pipeline-step'
import { machines } from './drivers'
import { everything, flow } from './pipeline'

// Forms with every field there is take a busy machine a while.
vi.setConfig({ testTimeout: 60_000 })

const nothing = () => {}
const names = ['dev', 'staging', 'production']
function drawn(body: Json, findings: Finding[] = [], schema: Schema = true, earlier: string[] = ['dev', 'staging']): string {
  const config = isRecord(body.config) ? body.config : {}
  return renderToStaticMarkup(
    <StepForm step={{ key: 'k', body }} environments={names} earlier={earlier} targets={names} called={(name) => name} pipeline={flow} schema={schema} driver="made-up@1" config={config} findings={findings} offers={{ agents: [], credentials: [] }} onChange={nothing} />,
  )
}
const whole = (document: Json, findings: Finding[] = []) => renderToStaticMarkup(<Rest schema={partOf(flow, flow, document, ['steps'])} body={document} findings={findings} folded="The rest" onChange={nothing} />)
const fieldsOf = (html: string) => new Set([...html.matchAll(/data-field="([^"/]*)/g)].map((m) => m[1]))

describe('every member that the schema knows has a form', () => {
  const byHand: Record<string, string[]> = {
    deploy: ['Environment', 'An approval before it', 'Gates', 'What it follows'],
    pause: ['Name', 'Seconds to wait'],
    approval: ['Name', 'What the one who approves should know', 'How many people', 'Group', 'The requester of the rollout', 'Expires after seconds', 'When it has expired'],
    analysis: [],
    job: ['Environment'],
  }
  test.each(everything().steps.map((s) => [String(s.type), s] as const))('of the step %s', (type, body) => {
    const html = drawn(body)
    for (const label of byHand[type]!) expect(html).toContain(`>${label}`)
    const members = Object.keys(body).filter((m) => m !== 'type' && m !== 'x-newer')
    const left = members.filter((m) => !fieldsOf(html).has(m))
    expect(left.length).toBe(byHand[type]!.length)
    expect(html).not.toContain('as JSON: there is no form')
  })
  test('of the whole pipeline', () => {
    const known = Object.keys(flow.properties ?? {}).filter((m) => m !== 'steps')
    expect([...fieldsOf(whole(everything()))].sort()).toEqual(known.sort())
    expect(whole({ deadline: { after: 5 }, inputs: {}, steps: [] })).toContain('The rest (2 set)')
  })
  test('an approval at a gate, with everything that one has', () => {
    const html = drawn({ type: 'deploy', environment: 'dev', gates: [{ weight: 5, approval: { quorum: 2, expires_after: 60 } }], config: {} })
    expect(html).toContain('Who approves at gate 1')
    expect(html).toContain('When it has expired')
  })
  test('a type of step that nobody knows is JSON, with what is wrong in it', () => {
    const html = drawn({ type: 'dance', tempo: 3 }, [{ path: ['tempo'], message: 'too fast' }])
    expect(html).toContain('&quot;tempo&quot;: 3')
    expect(html).toContain('tempo: Too fast.')
  })
  test('the configuration of an environment whose driver is not known is JSON', () => {
    expect(drawn({ type: 'deploy', environment: 'gone', config: { a: 1 } }, [{ path: ['config', 'a'], message: 'found 1; expected 2' }])).toContain('a: Found 1; expected 2.')
  })
})

describe('what is wrong is shown once, at its field', () => {
  const said = (html: string) => html.split(/found this; expected that/i).length - 1
  const invalid = (html: string, field: string) => new RegExp(`<(input|select|textarea)[^>]*data-field="${field}"[^>]*>`).exec(html)?.[0].includes('aria-invalid="true"')
  const at = (path: string): Finding[] => [{ path: path.split('/').filter(Boolean), message: 'found this; expected that' }]
  const deploy = { type: 'deploy', environment: 'production', config: { hosts: [{ name: 'a' }] }, before: [{ name: 'migrate', template: 'x' }], deadline: { after: 1 }, checks: { active: [{ key: 'a' }] } }
  test.each(['before/0/name', 'before/0/template', 'deadline/after', 'checks/active/0/key', 'before/0/retries'])('of a deploy step: %s', (path) => {
    const html = drawn(deploy, at(path), machines)
    expect(said(html)).toBe(1)
    expect(invalid(html, path)).toBe(true)
    expect(html).toContain('<details class="optional" open="">')
  })
  test.each(['', 'newer', 'newer/deep', 'before', 'before/7/name', 'before/0/newer', 'approval/newer', 'gates/4/approval/newer', 'config/newer', 'config/hosts/0/name', 'config/hosts/9', 'follows'])('wherever it is: %s', (path) => {
    expect(said(drawn(deploy, at(path), machines))).toBe(1)
  })
  test('of jobs and of the whole pipeline', () => {
    const job = drawn({ type: 'job', environment: 'dev', job: { name: 'x', template: '' } }, at('job/name'))
    expect([said(job), invalid(job, 'job/name')]).toEqual([1, true])
    const html = whole({ steps: [], deadline: {} }, at('deadline/after'))
    expect([said(html), invalid(html, 'deadline/after')]).toEqual([1, true])
  })
})

describe('an edit changes its member, and nothing else', () => {
  const document: Json = {
    'x-first': [null],
    checks: { active: [{ kind: 'health', in_sync: true, 'x-newer': 1 }], 'x-newer': {} },
    deadline: { after: 5, 'x-newer': 1 },
    inputs: { properties: { region: { type: 'string', 'x-newer': false } } },
    steps: [{ type: 'dance' }],
    'x-last': { '': '' },
  }
  test.each(['deadline', 'work_deadline', 'alwaysUsePipeline', 'commitMatcher', 'inputs', 'checks'])('%s', (name) => {
    const part = partOf(flow, flow, document, ['steps'])
    const field = fields(part, part, document).find((f) => f.name === name)!
    const next = name === 'work_deadline' ? 60 : name === 'alwaysUsePipeline' ? true : { quickSync: '^docs', after: 60, properties: {}, active: [] }
    const edited = prune(part, part, withField(part, part, document, field, next)) as Json
    expect(JSON.stringify({ ...edited, [name]: undefined })).toBe(JSON.stringify({ ...document, [name]: undefined }))
    expect(edited[name]).toBeDefined()
    expect(Object.keys(edited).filter((k) => k in document)).toEqual(Object.keys(document))
  })
})

test('what it follows: the environment before it unless others are named, and nothing to choose in the first', () => {
  const of = (follows: string[] | undefined, earlier?: string[]) => drawn({ type: 'deploy', environment: 'production', config: {}, follows }, [], true, earlier)
  const boxes = (html: string) => [...html.split('What it follows')[1]!.split('</fieldset>')[0]!.matchAll(/type="checkbox"( checked="")?/g)].map((m) => m[1] !== undefined)
  expect(boxes(of(undefined))).toEqual([true])
  expect(boxes(of(['dev']))).toEqual([false, true, false])
  expect(boxes(of(['gone']))).toEqual([false, false, false, true])
  expect(of([])).toContain('no environment guards its entrance')
  expect(of(undefined, ['dev'])).not.toContain('What it follows')
})

test('a new job runs where the pipeline was last, under a name of its own', () => {
  const steps: Step[] = [newDeploy('dev', []), newDeploy('staging', [])]
  const job = newStep('job', steps)
  expect(job.body).toEqual({ type: 'job', environment: 'staging', job: { name: 'job', template: '' } })
  expect(newStep('job', [...steps, job]).body.job).toMatchObject({ name: 'job-2' })
  expect(environmentsBefore(draftOf({ steps: [job.body, ...steps.map((s) => s.body)] }).steps, 2)).toEqual(['dev'])
})
