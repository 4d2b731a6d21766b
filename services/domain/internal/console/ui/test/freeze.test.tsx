// Freezes as everybody sees them (D49): a banner on every page with the time left, one button that starts one, and who may end it.
import { QueryClientProvider } from '@tanstack/react-query'
import { type ReactNode } from 'react'
import { renderToStaticMarkup } from 'react-dom/server'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type FreezesData } from '../src/api/generated'
import { newQueryClient } from '../src/api/hooks'
import { FreezeBanner, FreezeButton, scopeWords, selector } from '../src/parts/freeze'

type Freeze = FreezesData['freezes']['nodes'][number]

const freeze = (given: Partial<Freeze>): Freeze => ({
  id: 'freeze_1',
  reason: 'incident 99',
  incident: 'INC-99',
  author: 'ann',
  startsAt: '2027-01-15T08:00:00Z',
  endsAt: '2027-01-15T12:00:00Z',
  inForce: true,
  rollbacks: false,
  stoppedRollouts: 0,
  tiers: ['PRODUCTION'],
  environments: [],
  applications: [],
  environmentLabels: null,
  applicationLabels: null,
  ...given,
})

const render = (what: ReactNode, nodes: Freeze[]) => {
  const client = newQueryClient()
  client.setQueryData(['Freezes', {}], { freezes: { nodes } })
  return renderToStaticMarkup(<QueryClientProvider client={client}>{what}</QueryClientProvider>)
}

beforeEach(() => {
  vi.useFakeTimers()
  vi.setSystemTime('2027-01-15T09:30:00Z')
})
afterEach(() => {
  vi.useRealTimers()
})

describe('a freeze by label (D49)', () => {
  test('says which labels it asks of', () => {
    const html = render(<FreezeBanner permissions={[]} />, [freeze({ tiers: [], environmentLabels: { region: 'eu' }, applicationLabels: { tier: 'critical', team: 'web' } })])
    expect(html).toContain('environments with region=eu; applications with team=web, tier=critical')
  })
  test('labels are read as people write them, and others are errors', () => {
    expect(selector('tier=critical, team=web')).toEqual({ tier: 'critical', team: 'web' })
    expect(selector(' ')).toBeNull()
    expect(() => selector('critical')).toThrow('“critical” is no label')
    expect(() => selector(',')).toThrow('is no label')
    expect(() => selector('region=eu, region=us')).toThrow('“region” appears twice')
  })
})

describe('the banner', () => {
  test('says what is frozen, why, by whom, for how long, and what waits', () => {
    const html = render(<FreezeBanner permissions={['FREEZE']} />, [freeze({ stoppedRollouts: 2 })])
    expect(html).toContain('<bdi>production</bdi>')
    expect(html).toContain('incident 99')
    expect(html).toContain('<bdi>ann</bdi>')
    expect(html).toContain('2 h 30 min left')
    expect(html).toContain('2 rollouts wait for its end')
    expect(html).toContain('>End</button>')
  })
  test('an end is for those who may freeze', () => {
    expect(render(<FreezeBanner permissions={['READ']} />, [freeze({})])).not.toContain('<button')
  })
  test('one for each that is in force, none for others', () => {
    const html = render(<FreezeBanner permissions={['READ']} />, [freeze({}), freeze({ id: 'freeze_2', reason: 'later', inForce: false }), freeze({ id: 'freeze_3', reason: 'audit' })])
    expect(html.match(/<section/g)).toHaveLength(2)
    expect(html).not.toContain('later')
    expect(render(<FreezeBanner permissions={['FREEZE']} />, [freeze({ inForce: false })])).toBe('')
  })
  test('a reason is text', () => {
    expect(render(<FreezeBanner permissions={['READ']} />, [freeze({ reason: '<img src=x>' })])).not.toContain('<img')
  })
})

test('one button starts a freeze', () => {
  expect(render(<FreezeButton scope={{ environments: ['production'] }} name="production" />, []).match(/<button/g)).toHaveLength(1)
})

test('scopes in words', () => {
  expect(scopeWords(freeze({ tiers: [] }))).toBe('everything')
  expect(scopeWords(freeze({ rollbacks: true, environments: [{ id: 'environment_1', name: 'eu-1', displayName: 'europe' }], applications: [{ id: 'application_1', name: 'shop' }] }))).toBe('production; europe; shop, with rollbacks')
})
