import { describe, expect, test } from 'vitest'
import type { CellFields, RolloutPageData, SetFields } from '../src/api/generated'
import { environmentOf, inserted, located, moved, newDeploy, newStep } from '../src/form/pipeline-steps'
import { ability } from '../src/logic/ability'
import { difference, shortDigest } from '../src/logic/difference'
import { afterApproval, course, missingAfter, requirement, urgentFirst, type Lane } from '../src/logic/gates'
import type { Step } from '../src/logic/pipeline'
import { earlier, leftOut, skipWords, targets } from '../src/logic/scope'
import { ago, progress, remaining, shortTime, span } from '../src/logic/time'
import { conditions, names } from '../src/logic/waiting'
import { attempt, filterOf } from '../src/logic/where'

type Rollout = NonNullable<RolloutPageData['rollout']>
type Gates = Rollout['environments'][number]['deployments'][number]['gates']
const at = '2026-11-21T04:00:00Z'

/** Weights that a deployment has reached, and those that it has passed. */
const gates = (reached: number[], passed: number[] = []): Gates =>
  reached.map((weight) => ({ gateId: `staging/${weight}`, weight, reachedAt: at, passedAt: passed.includes(weight) ? at : null }))

function rollout(states: [string, string], seen: [Gates, Gates] = [[], []], change: object = {}): Rollout {
  const deployment = (id: string, name: string, state: string, g: Gates) => ({ id, state, startedAt: state === 'PENDING' ? null : at, finishedAt: null, service: { id: name, name }, versions: [], gates: g, snapshot: null })
  return {
    id: 'rollout_1', state: 'IN_PROGRESS', createdAt: at, workflowRef: 'x', openGates: [], waitingOn: [], skippedEnvironments: [],
    flowDefinition: { id: 'f', version: 1, definition: { steps: [{ type: 'deploy', environment: 'staging', gates: [{ weight: 25 }, { weight: 50 }], config: {} }, { type: 'approval', name: 'release', reason: 'look' }, { type: 'dance' }] } },
    environments: [{ id: 'e', position: 1, state: 'IN_PROGRESS', startedAt: at, environment: { id: 'x', name: 'staging', tier: 'STAGING' }, deployments: [deployment('deployment_1', 'api', states[0], seen[0]), deployment('deployment_2', 'web', states[1], seen[1])] }],
    ...change,
  } as unknown as Rollout
}

const marks = (r: Rollout) => {
  const part = course(r, []).find((p) => p.kind === 'lane') as { lane: Lane }
  return part.lane.rows.map((x) => [...x.marks, x.end].join(' '))
}

describe('gates', () => {
  test('from start to health', () => {
    expect(marks(rollout(['PENDING', 'PENDING']))).toEqual(['ahead ahead ahead', 'ahead ahead ahead'])
    expect(marks(rollout(['DEPLOYING', 'DEPLOYING']))).toEqual(['next ahead ahead', 'next ahead ahead'])
    expect(marks(rollout(['DEPLOYING', 'DEPLOYING'], [gates([25]), []]))).toEqual(['here ahead ahead', 'next ahead ahead'])
    const first = gates([25], [25])
    expect(marks(rollout(['DEPLOYING', 'DEPLOYING'], [first, first]))).toEqual(['passed next ahead', 'passed next ahead'])
    expect(marks(rollout(['DEGRADED', 'FAILED'], [first, first]))).toEqual(['passed stopped ahead', 'passed stopped ahead'])
    const both = gates([25, 50], [25, 50])
    expect(marks(rollout(['DEPLOYING', 'HEALTHY'], [both, both]))).toEqual(['passed passed next', 'passed passed here'])
  })
  test('a first deploy needs no gates; what never began is not stopped', () => {
    expect(marks(rollout(['HEALTHY', 'CANCELLED']))).toEqual(['skipped skipped here', 'stopped ahead ahead'])
    const never = rollout(['PENDING', 'PENDING'])
    for (const d of never.environments[0]!.deployments) d.state = 'CANCELLED'
    expect(marks(never)).toEqual(['ahead ahead ahead', 'ahead ahead ahead'])
  })
  test('what is aborted stands nowhere: it is taken back from wherever it was', () => {
    const aborted = rollout(['DEPLOYING', 'DEPLOYING'], [gates([25, 50], [25]), gates([25])])
    for (const d of aborted.environments[0]!.deployments) d.status = 'ABORTED'
    expect(marks(aborted)).toEqual(['back back back', 'back ahead back'])
    const part = course(aborted, []).find((p) => p.kind === 'lane') as { lane: Lane }
    expect(part.lane.arrived).toEqual([0, 0])
  })
  test('environments that a rollback skips are in their place, with what was asked before them', () => {
    const skip = { skippedEnvironments: [{ environment: { id: 'x', name: 'staging', tier: 'STAGING' }, cause: 'UNCHANGED' }], environments: [] }
    const parts = course(rollout(['PENDING', 'PENDING'], [[], []], skip), [])
    expect(parts.map((p) => (p.kind === 'lane' ? 'lane' : p.stop.kind))).toEqual(['skipped'])
  })
  test('a gate says how it was closed, by break-glass too', () => {
    const closed = (event: string) => course(rollout(['HEALTHY', 'HEALTHY']), [{ subject: 'rollout_1', gateId: 'release', event } as never]).flatMap((p) => (p.kind === 'stop' && p.stop.kind === 'approval' ? [p.stop.resolution?.event] : []))
    expect(['approve', 'reject', 'expire', 'break_glass', 'request_approval'].map((e) => closed(e)[0])).toEqual(['approve', 'reject', 'expire', 'break_glass', undefined])
  })
  test('R4-26: a job that is left out is shown at its own step, before and after a deployment or between them', () => {
    const skip_on = { paths: ['docs/**'] }
    const job = (name: string) => ({ name, skip_on })
    const definition = {
      steps: [
        { type: 'deploy', environment: 'staging', gates: [], config: {}, before: [job('migrate')], after: [job('smoke')] },
        { type: 'job', environment: 'staging', job: job('report') },
      ],
    }
    const skipped = (what: string, why: string) => ({ subject: 'rollout_1', event: 'skip', reason: `the job ${what} in staging is skipped: ${why}` }) as never
    const parts = course(rollout(['HEALTHY', 'HEALTHY'], [[], []], { flowDefinition: { id: 'f', version: 1, definition } }), [
      skipped('migrate', 'one'), skipped('smoke', 'two'), skipped('report', 'three'),
    ])
    expect(parts.map((p) => (p.kind === 'lane' ? 'lane' : p.stop.kind === 'left' ? `${p.stop.what}: ${p.stop.why}` : p.stop.kind === 'other' ? `${p.stop.name}: ${p.stop.left}` : p.stop.kind))).toEqual([
      'lane', 'the job migrate in staging: one', 'the job smoke in staging: two', 'report: three',
    ])
  })
  test('stops between environments, and steps that this build does not know', () => {
    expect(course(rollout(['PENDING', 'PENDING']), []).map((p) => (p.kind === 'lane' ? 'lane' : p.stop.kind))).toEqual(['lane', 'approval', 'other'])
  })
})

describe('where a rollback goes', () => {
  const deploy = (environment: string) => ({ kind: 'deploy' as const, environment, approval: null, gates: [], config: {} }) satisfies Step
  const ask = (name: string) => ({ kind: 'approval' as const, gateId: name, reason: '' }) satisfies Step
  const wait = { kind: 'pause' as const, seconds: 5, name: '', mayBeLeft: false } satisfies Step
  const skips = (of: Record<string, string>) => Object.entries(of).map(([name, cause]) => ({ environment: { id: name, name, tier: 'QA' }, cause })) as never
  // The rule of the service (core/rollout/scope.go, keepsBetween), step by step.
  const left = (steps: Parameters<typeof leftOut>[0], of: Record<string, string>) => steps.flatMap((s, i) => (s.kind !== 'deploy' && leftOut(steps, i, skips(of)) ? [i] : []))
  test('what is asked or waited for goes with the environments that are skipped, and only with them', () => {
    const steps = [deploy('qa'), wait, ask('release'), deploy('eu'), ask('more'), deploy('us'), ask('done')]
    expect(left(steps, {})).toEqual([])
    expect(left(steps, { qa: 'UNCHANGED' })).toEqual([1])
    expect(left(steps, { eu: 'UNCHANGED' })).toEqual([2])
    expect(left(steps, { eu: 'EXCLUDED' })).toEqual([])
    expect(left(steps, { us: 'EXCLUDED' })).toEqual([4, 6])
    expect(left(steps, { eu: 'UNCHANGED', us: 'EXCLUDED' })).toEqual([1, 2, 4, 6])
  })
  test('environments in the order of the pipeline; what was tried since is not unchanged', () => {
    const cell = (name: string, live: string, latest: object | null = null) => ({ environment: { id: name, name, tier: 'QA' }, live: { id: live, name: live }, latestVersionSet: { id: 'new' }, latest })
    const app = {
      flowDefinition: { id: 'f', definition: { steps: [{ type: 'deploy', environment: 'a' }, { type: 'approval' }, { type: 'deploy', environment: 'b' }, { type: 'deploy', environment: 'c' }] } },
      environments: [cell('c', 'old', { status: 'FAILED', startedAt: at }), cell('b', 'old', { status: 'CANCELLED', startedAt: null }), cell('a', 'new'), cell('elsewhere', 'new')],
    } as unknown as Parameters<typeof targets>[0]
    expect(targets(app, 'old').map((t) => `${t.name} ${t.unchanged}`)).toEqual(['a false', 'b true', 'c false'])
  })
  test('never to its own set or a newer one', () => {
    const set = (id: string, second: number) => ({ id, createdAt: `2026-11-21T04:00:0${second}Z` })
    expect(earlier([set('3', 3), set('2', 2), set('1', 1)], set('2', 2)).map((s) => s.id)).toEqual(['1'])
    expect(skipWords('UNCHANGED', 'set-1')).toBe('set-1 is live there already')
  })
})

describe('why it waits', () => {
  const wait = (kind: string, more: object = {}) => ({ kind, status: 'PENDING', subject: null, approvers: [], link: null, detail: 'because', resolver: 'the cluster', neededPermission: null, since: at, until: null, gateId: null, environment: { id: 'x', name: 'staging' }, service: null, ...more })
  test('what moves to one gate is one condition, with those that stand there', () => {
    const late = { waitingOn: [wait('HEALTH', { service: { id: 'web', name: 'web' } })] }
    const one = conditions(rollout(['DEPLOYING', 'DEPLOYING'], [gates([25]), []], late))
    expect(one.map((c) => c.title)).toEqual(['web is on its way to 25 % in staging'])
    expect(one[0]?.joint).toContain('api has arrived already')
    const both = { waitingOn: ['api', 'web'].map((name) => wait('HEALTH', { service: { id: name, name } })) }
    expect(conditions(rollout(['DEPLOYING', 'DEPLOYING'], [[], []], both)).map((c) => c.title)).toEqual(['api and web are on their way to 25 % in staging'])
    const passed = gates([25, 50], [25, 50])
    expect(conditions(rollout(['DEPLOYING', 'DEPLOYING'], [passed, passed], both)).map((c) => c.title)).toEqual(['api and web are on their way to full traffic and health in staging'])
  })
  test('everything else keeps the order and the text of the server', () => {
    const open = { gateId: 'release', viewerCan: [] }
    const all = conditions(rollout(['HEALTHY', 'HEALTHY'], [[], []], { openGates: [open], waitingOn: [wait('PAUSE', { environment: null }), wait('APPROVAL', { gateId: 'release' }), wait('AGENT')] }))
    expect(all.map((c) => c.title)).toEqual(['Paused', '“release” needs approval', 'No agent can be reached in staging'])
    expect(all.map((c) => c.gate)).toEqual([null, open, null])
    const held = (status: string) => conditions(rollout(['DEPLOYING', 'DEPLOYING'], [[], []], { status, waitingOn: [wait('PAUSE', { environment: null })] })).map((c) => c.title)
    expect([held('PAUSED'), held('ABORTING'), held('ABORTED')]).toEqual([['Paused'], ['Aborting: the previous version is being restored'], ['Aborted: retry it, roll it back or cancel it']])
    const soak = conditions(rollout(['DEPLOYING', 'DEPLOYING'], [[], []], { waitingOn: [wait('SOAK', { gateId: 'staging/10', until: at })] }))
    expect(soak.map((c) => [c.title, c.detail, c.until])).toEqual([['Soaking at 10 % in staging', '', at]])
    expect(all.every((c) => c.detail === 'because' && c.resolver === 'the cluster')).toBe(true)
  })
})

test('what the server does not speak of is left to it to refuse', () => {
  expect(ability([{ action: 'a', allowed: false, reason: 'no' }], 'a')).toEqual({ action: 'a', allowed: false, reason: 'no' })
  expect(ability(undefined, 'a').allowed).toBe(true)
})

describe('live versions', () => {
  const at = (state: string | null, more: object = {}) =>
    ({ state, latestVersionSet: { id: 's', name: 'set-2' }, latest: state && { id: 'e', startedAt: '2026-11-21T04:00:00Z', status: state, rollout: { id: 'r', isRollback: false } }, gates: [], ...more }) as unknown as CellFields
  test('what is on its way, or did not come through', () => {
    expect(attempt(at(null))).toBeNull()
    expect(attempt(at('COMPLETED'))).toBeNull()
    expect(attempt(at('FAILED'))).toEqual({ rolloutId: 'r', state: 'FAILED', set: 'set-2', isRollback: false, gate: null })
    expect(attempt(at('CANCELLED', { latest: { id: 'e', startedAt: null, status: 'CANCELLED', rollout: { id: 'r', isRollback: false } } }))).toBeNull()
    expect(attempt(at('PENDING', { gates: [{ gateId: 'release' }] }))?.gate).toBe('release')
    expect(attempt(at('FAILED', { gates: [{ gateId: 'release' }] }))?.gate).toBeNull()
  })
  test('the address is the filter, and what nobody knows asks nothing', () => {
    expect(filterOf(new URLSearchParams('after=x&q=%20&state=dancing&waiting=perhaps'))).toBeNull()
    expect(filterOf(new URLSearchParams('q=shop&environment=staging&state=failed&health=degraded&waiting=yes'))).toEqual({
      text: 'shop', environments: ['staging'], states: ['FAILED'], health: ['DEGRADED'], waiting: true,
    })
  })
})

test('differences are by source', () => {
  const entry = (source: string, digest: string) => ({ service: { id: source, name: source }, artifactSource: { id: source, sourceRef: 'x', sourceConfig: { image: `r/${source}` } }, version: { id: digest, name: digest, digest, reference: '', createdAt: at } })
  const a = { id: 'a', name: 'a', createdAt: at, entries: [entry('api', '1'), entry('web', '1'), entry('old', '1')] } as SetFields
  const b = { id: 'b', name: 'b', createdAt: at, entries: [entry('api', '2'), entry('web', '1'), entry('new', '1')] } as SetFields
  expect(difference(a, b).map((c) => `${c.service} ${c.kind}`)).toEqual(['api changed', 'web same', 'new added', 'old removed'])
  expect(shortDigest(`sha256:${'a'.repeat(64)}`)).toBe('sha256:aaaaaaaaaaaa')
})

test('times', () => {
  expect([span(400), span(59_000), span(61_000), span(7_300_000), span(200_000_000)]).toEqual(['0 s', '59 s', '1 min', '2 h', '2 d'])
  expect(ago(at, Date.parse(at) - 3000)).toBe('just now')
  const now = Date.parse(at)
  expect(shortTime(at, now)).toMatch(/^\d\d:\d\d( [AP]M)?$/)
  expect(shortTime(at, now + 86_400_000)).toContain('21')
})

test('a countdown stays within its bar, whatever the clocks say', () => {
  const now = Date.parse(at)
  const later = (ms: number) => new Date(now + ms).toISOString()
  expect([remaining(42_000), remaining(598_000), remaining(600_000), remaining(7_500_000), remaining(90_000_000), remaining(-5)]).toEqual(['42 s', '9 min 58 s', '10 min', '2 h 5 min', '1 d 1 h', '0 s'])
  expect([progress(at, later(100_000), now + 25_000), progress(at, later(1000), now - 5000), progress(at, later(1000), now + 5000), progress(at, at, now), progress(later(5), at, now)]).toEqual([0.25, 0, 1, 1, 1])
})

test('steps move, and keep who they are', () => {
  const steps = ['a', 'b', 'c'].map((e) => newDeploy(e, ['api']))
  const order = (all: typeof steps) => all.map(environmentOf).join('')
  expect([order(moved(steps, 0, 2)), order(moved(steps, 2, 0)), order(moved(steps, 1, 9)), order(moved(steps, 9, 0))]).toEqual(['bca', 'cab', 'acb', 'abc'])
  expect(moved(steps, 0, 2)[2]?.key).toBe(steps[0]?.key)
  expect(inserted(steps, 1, newStep('pause')).map((s) => s.body.type)).toEqual(['deploy', 'pause', 'deploy', 'deploy'])
})

test('findings are at the step that they are about', () => {
  expect(located([{ pointer: '/steps/2/gates/0/weight', message: 'm' }, { pointer: '', message: 'm' }, { pointer: '/steps/1/config/a~1b', message: 'm' }]).map((l) => `${l.step} ${l.finding.path.join(' ')}`)).toEqual(['2 gates 0 weight', '-1 ', '1 config a/b'])
})

test('of many names a sentence has four; of many services those that need attention come first', () => {
  expect(names(['a', 'b', 'c'])).toBe('a, b and c')
  expect(names([...'abcdefgh'])).toBe('a, b, c, d and 4 others')
  const rows = [...'hdxhf'].map((c, i) => ({ deployment: { id: String(i), state: { h: 'HEALTHY', d: 'DEPLOYING', x: 'DEGRADED', f: 'FAILED' }[c] } })) as unknown as Lane['rows']
  expect(urgentFirst(rows).map((r) => r.deployment.id).join('')).toBe('24103')
})

describe('what an approval needs (D46)', () => {
  const one = (given: number, quorum: number, group: string | null = null) => ({ group, quorum, given })
  test('of one requirement how many are missing', () => {
    expect(requirement(one(1, 2, 'platform'), 0)).toBe('1 of 2 approvals by members of platform')
    expect(afterApproval([one(0, 1)], 'It')).toBe('It continues.')
    expect(afterApproval([one(0, 3)], 'It')).toBe('It continues when 2 more people have approved.')
  })
  test('of two groups both, and never more than asked', () => {
    const both = [one(0, 1, 'managers'), one(3, 2, 'platform')]
    expect(afterApproval(both, 'It')).toBe('It continues.')
    expect(afterApproval([one(0, 1, 'managers'), one(1, 2, 'platform')], 'It')).toBe('It continues when all requirements are met. Missing: 0 of 1 approval by members of managers; 1 of 2 approvals by members of platform.')
    expect(missingAfter(both)).toBe(0)
  })
})
