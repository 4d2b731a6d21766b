// Change control and grants (D50): what a proposed change changes and who may decide it, where a grant counts, and what is marked.
import { renderToStaticMarkup } from 'react-dom/server'
import { describe, expect, test } from 'vitest'
import type { GrantFields } from '../src/api/generated'
import { One } from '../src/pages/changes'
import { ControlChips } from '../src/parts/control'
import { everyGrant, limits } from '../src/parts/grants'

const at = '2026-11-21T04:00:00Z'

describe('a proposed change', () => {
  const change = (more: object = {}) =>
    ({
      id: 'proposedchange_1', state: 'OPEN', action: 'setEnvironmentApproval', subject: 'environment_3', subjectName: 'production', application: null, environments: [{ id: 'environment_3', name: 'production' }],
      proposerName: 'alice', reason: 'fewer people', detail: '', before: { quorum: 2, group: 'platform' }, after: { quorum: 1, group: 'platform' }, createdAt: at, expiresAt: at, decidedAt: null, decider: null, decision: '',
      viewerCan: [
        { action: 'confirmChange', allowed: true, reason: null },
        { action: 'rejectChange', allowed: true, reason: null },
        { action: 'withdrawChange', allowed: false, reason: 'alice proposed it' },
        { action: 'forceChange', allowed: false, reason: 'needs the permission break_glass' },
      ],
      ...more,
    }) as never
  const drawn = (more?: object) => renderToStaticMarkup(<One change={change(more)} />)
  test('shows what differs, and nothing else', () => {
    expect(drawn()).toContain('Set environment approval')
    expect(drawn()).toContain('quorum')
    expect(drawn()).not.toContain('platform')
  })
  test('is decided by those who may', () => {
    expect(drawn()).toContain('Confirm')
    expect(drawn()).toContain('Reject')
    expect(drawn()).not.toContain('Withdraw')
    expect(drawn()).not.toContain('Force')
  })
  test('is decided once, and a forced one is marked', () => {
    const forced = drawn({ state: 'FORCED', decidedAt: at, decider: { name: 'bob' }, decision: 'fire' })
    expect(forced).not.toContain('<button')
    expect(forced).toContain('Forced')
    expect(forced).toContain('bob')
  })
})

describe('grants', () => {
  const grant = (id: string, more: object = {}) => ({ id, permissions: ['DEPLOY'], member: null, group: null, applications: [], environments: [], tiers: [], createdAt: at, ...more }) as GrantFields
  test('name each limit, or count everywhere', () => {
    expect(limits(grant('grant_1'))).toBe('everywhere')
    expect(limits(grant('grant_1', { applications: [{ id: 'application_1', name: 'shop' }], tiers: ['PRODUCTION', 'QA'] }))).toBe('applications shop; tiers production, qa')
  })
  test('of a group are listed once, also if several members have them', () => {
    const shared = grant('grant_1')
    const members = [{ grants: [shared] }, { grants: [shared, grant('grant_2', { createdAt: '2026-11-22T04:00:00Z' })] }] as never
    expect(everyGrant(members, [{ grants: [shared] }]).map((g) => g.id)).toEqual(['grant_2', 'grant_1'])
  })
})

describe('an environment', () => {
  test('is marked where a second person confirms changes, and where its gates can be gone around', () => {
    const both = renderToStaticMarkup(<ControlChips environment={{ changeControl: true, directChanges: true }} />)
    expect(both).toContain('Change control')
    expect(both).toContain('Direct changes')
    expect(renderToStaticMarkup(<ControlChips environment={{ changeControl: false, directChanges: false }} />)).toBe('')
  })
})
