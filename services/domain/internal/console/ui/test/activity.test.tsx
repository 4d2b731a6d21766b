// Who did what (D50), and the passages of a rollout (D46): what the address asks for, what changed, and what the journal says.
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { renderToStaticMarkup } from 'react-dom/server'
import { MemoryRouter } from 'react-router'
import { describe, expect, test } from 'vitest'
import { Activity as Operation, JournalChain, Viewer, type JournalRow } from '../src/api/generated'
import { actionWords, asked, fieldChanges, instant, subjectPage, subjectWords, type Entry } from '../src/logic/activity'
import { breach, passages, notable } from '../src/logic/passages'
import Activity from '../src/pages/activity'
import { Passages } from '../src/parts/passages'

const at = '2026-11-23T04:00:00Z'
const entry = (more: object = {}): Entry =>
  ({
    journal: 'change', position: 7, principalType: 'user', principalId: 3, principalName: 'alice', action: 'setRollbackPolicy', subject: 'application_1', subjectName: 'shop',
    application: { id: 'application_1', name: 'shop' }, environment: null, reason: '', detail: '', before: null, after: null, traceId: null, createdAt: at, ...more,
  }) as Entry

describe('activity', () => {
  test('the address asks what lockstep audit asks (D50)', () => {
    const { filter, problem } = asked(new URLSearchParams('who=alice&action=approve&application=shop&environment=production&since=2026-11-01T00:00:00Z&until=2026-12-01&after=x'))
    expect(problem).toBe('')
    expect(filter).toEqual({ principal: 'alice', action: 'approve', application: 'shop', environment: 'production', since: '2026-11-01T00:00:00.000Z', until: new Date(2026, 11, 1).toISOString() })
    expect(asked(new URLSearchParams('who=+')).filter).toEqual({})
    expect(asked(new URLSearchParams('since=soon')).problem).toBe('The address has “since=soon”; expected a day such as 2026-11-23.')
    expect(instant('2026-13-45')).toBeNull()
  })
  test('what a change changed, field by field', () => {
    const before = { onFailed: true, steps: [{ weight: 10 }, { weight: 50 }], name: 'a', gone: null, same: [] }
    const after = { onFailed: false, steps: [{ weight: 10 }, { weight: 60 }], name: 'a', groups: {}, same: [] }
    expect(fieldChanges(before, after)).toEqual([
      { path: 'onFailed', before: 'true', after: 'false' },
      { path: 'steps.1.weight', before: '50', after: '60' },
      { path: 'groups', before: null, after: '{}' },
      { path: 'gone', before: 'null', after: null },
    ])
    expect(fieldChanges(null, { a: 1 })).toEqual([{ path: 'a', before: null, after: '1' }])
    expect(fieldChanges({ a: '' }, null)).toEqual([{ path: 'a', before: '', after: null }])
    expect(fieldChanges(null, null)).toEqual([])
    expect(fieldChanges(after, after)).toEqual([])
  })
  test('where a subject is shown', () => {
    expect(subjectPage(entry())).toBe('/applications/shop')
    expect(subjectPage(entry({ subject: 'rollout_9' }))).toBe('/rollouts/rollout_9')
    expect(subjectPage(entry({ subject: 'environment_2', environment: { id: 'environment_2', name: 'pro/d' } }))).toBe('/environments/pro%2Fd')
    expect(subjectPage(entry({ subject: 'flowdefinition_4' }))).toBe('/applications/shop/pipeline')
    expect(subjectPage(entry({ subject: 'application_1', application: null }))).toBeNull()
    expect(subjectPage(entry({ subject: null, subjectName: 'deploy-9', action: 'retryWorkflow' }))).toBe('/workflows/deploy-9')
    expect(subjectPage(entry({ subject: 'accesstoken_4' }))).toBeNull()
    expect(subjectWords(entry({ subjectName: '', subject: 'rollout_9' }))).toBe('rollout_9')
    expect([actionWords('setRollbackPolicy'), actionWords('break_glass'), actionWords('approve')]).toEqual(['Set rollback policy', 'Break glass', 'Approve'])
  })
})

/** The page as it is drawn with what the server has answered already. */
function page(permissions: string[], address: string, nodes: Entry[], chain: object = {}) {
  const client = new QueryClient()
  client.setQueryData([Viewer.name, {}], { viewer: { permissions, viewerCan: [{ action: 'accessChanges', allowed: false, reason: 'found the role viewer; expected owner' }] } })
  const { filter } = asked(new URL(address, 'http://x').searchParams)
  client.setQueryData([Operation.name, { filter, first: 50, after: null }], { audit: { nodes, pageInfo: { hasNextPage: false, endCursor: null } } })
  client.setQueryData([JournalChain.name, { first: 1, after: 0 }], { journalChain: { blocks: 1, rows: 3, block: 1, head: 'aa', more: true, problem: null, lastCheck: null, ...chain } })
  return renderToStaticMarkup(
    <QueryClientProvider client={client}>
      <MemoryRouter initialEntries={[address]}>
        <Activity />
      </MemoryRouter>
    </QueryClientProvider>,
  )
}

describe('the page of the activity', () => {
  test('is for owners; others learn why', () => {
    const html = page(['READ'], '/activity', [entry()])
    expect(html).toContain('The activity is for owners')
    expect(html).toContain('Found the role viewer; expected owner.')
    expect(html).not.toContain('alice')
  })
  test('who, what and where, with links, and the filters of the address', () => {
    const html = page(['READ', 'ADMINISTER'], '/activity?who=alice&environment=production', [entry({ environment: { id: 'e', name: 'production' }, reason: 'because' })])
    for (const part of ['href="/applications/shop"', 'href="/environments/production"', '?who=member_3', 'Set rollback policy', 'because', 'aria-expanded="false"', 'value="production"']) expect(html).toContain(part)
  })
  test('nothing, and an address that cannot be read', () => {
    expect(page(['ADMINISTER'], '/activity', [])).toContain('Nothing was done yet')
    expect(page(['ADMINISTER'], '/activity?who=bob', [])).toContain('Nothing matches')
    expect(page(['ADMINISTER'], '/activity?since=soon', [])).toContain('since=soon')
  })
  test('says of the chain what the daily check found of all of it', () => {
    expect(page(['ADMINISTER'], '/activity', [])).toContain('Not checked yet')
    expect(page(['ADMINISTER'], '/activity', [], { block: 0, head: '' })).toContain('Nothing sealed yet')
    const lastCheck = { block: 9, head: 'ff', problem: null, checkedAt: at }
    const right = page(['ADMINISTER'], '/activity', [], { lastCheck })
    expect(right).toContain('Unchanged since it was sealed')
    expect(right).toContain('Block 9 has the digest')
    const wrong = page(['ADMINISTER'], '/activity', [], { lastCheck: { ...lastCheck, problem: 'block 4: the rows are not what was sealed' } })
    expect(wrong).toContain('Differs from what was sealed')
    expect(page(['ADMINISTER'], '/activity', [], { lastCheck, problem: 'block 1 is gone' })).toContain('Differs from what was sealed')
  })
})

describe('passages (D46)', () => {
  const row = (event: string, gateId: string | null, reason: string | null = null, more: object = {}) => ({ subject: 'rollout_1', event, gateId, reason, createdAt: at, principalType: 'system', principalId: null, principal: null, breach: false, conditions: [], ...more }) as unknown as JournalRow
  const condition = (kind: string, status: string, subject: string | null, more: object = {}) => ({ kind, status, subject, environment: null, by: [], soakSeconds: 0, cause: null, until: null, ...more })
  const rollout = { id: 'rollout_1', state: 'IN_PROGRESS', environments: [{ environment: { name: 'staging' } }] }
  const journal = [
    row('approve', 'staging', null, { principalType: 'user', principalId: 3, principal: { id: 'member_3', name: 'alice' } }),
    row('request_passage', 'staging'),
    row('pass_gate', 'staging', 'the text is not read', {
      conditions: [
        condition('APPROVAL', 'APPROVED', 'staging', { by: [{ principalType: 'user', principalId: 3, principal: { name: 'alice' }, groups: [] }, { principalType: 'user', principalId: 4, principal: null, groups: ['platform'] }] }),
        condition('CHECK', 'SUCCESS', 'scan', { environment: { name: 'staging' } }),
        condition('SKIPPED_WEIGHT', 'SKIPPED', 'staging/10', { soakSeconds: 600, cause: 'FIRST_DEPLOY' }),
      ],
    }),
    row('pass_gate', 'staging/50', null, { subject: 'deployment_1' }),
    row('request_passage', 'staging/50'),
    row('pass_gate', 'release', 'no approval required', { conditions: [condition('NOTHING_ASKED', 'NOT_NEEDED', null)] }),
  ]
  test('each with what satisfied it, in people’s names and times', () => {
    expect(passages(rollout, journal)).toEqual([
      { gateId: 'staging', title: 'Into staging', requestedAt: at, grantedAt: at, stoppedAt: null, silent: false, grounds: ['staging: approved by alice, user 4 (platform)', 'check scan of staging: success', 'will not stop at 10 %: nothing is live there yet', 'soak times of 10 min in all are omitted'] },
      { gateId: 'staging/50', title: 'Beyond 50 % in staging', requestedAt: at, grantedAt: null, stoppedAt: null, silent: false, grounds: [] },
      { gateId: 'release', title: 'Past “release”', requestedAt: null, grantedAt: at, stoppedAt: null, silent: true, grounds: ['no approval required'] },
    ])
    expect(passages(rollout, journal).map(notable)).toEqual([true, true, false])
    // After an abort it is requested again, and what was granted before does not count.
    expect(passages(rollout, [...journal, row('request_passage', 'staging')])[0]).toMatchObject({ grantedAt: null, grounds: [] })
    // What stops it is named; rows of earlier releases have a text.
    expect(passages(rollout, [row('request_passage', 'staging'), row('stop_passage', 'staging', 'text', { conditions: [condition('FREEZE', 'STOPPED', 'freeze_7')] })])[0]).toMatchObject({ stoppedAt: at, grounds: ['stopped by freeze_7'] })
    expect(passages(rollout, [row('pass_gate', 'staging', 'as it was; then')])[0]?.grounds).toEqual(['as it was; then'])
  })
  test('a breach is what the server says of a report from beyond', () => {
    const failed = (more: object) => breach(rollout, [row('fail', null, 'breach: what it reported', more)])
    expect(failed({ breach: true, conditions: [condition('PASSAGE', 'NOT_GRANTED', 'production')] })).toEqual({ passage: 'production', text: 'breach: what it reported' })
    expect(failed({ breach: true })).toEqual({ passage: null, text: 'breach: what it reported' })
    expect(failed({})).toBeNull()
    expect(breach(rollout, journal)).toBeNull()
  })
  test('are drawn with their states', () => {
    const drawn = (state: string) => renderToStaticMarkup(<Passages live={{ rollout: { ...rollout, openGates: [], waitingOn: [], state }, journal, pages: [] } as never} />)
    expect(drawn('IN_PROGRESS')).toContain('Requested')
    expect(drawn('IN_PROGRESS')).toContain('Staging: approved by alice, user 4 (platform).')
    expect(drawn('FAILED')).toContain('Never granted')
    // What needed nothing is drawn on request.
    expect(drawn('FAILED')).toContain('Show one that needed no approval')
    expect(drawn('FAILED')).not.toContain('Past “release”')
    expect(renderToStaticMarkup(<Passages live={{ rollout: { ...rollout, openGates: [], waitingOn: [] }, journal: [], pages: [] } as never} />)).toBe('')
  })
})
