// Issue 18, items 2, 6 and 7.
import { expect, test } from 'vitest'
import { countText, runFilterOf, statusText, statusValue } from '../src/logic/runs'

test('what a program reports reads without quotes', () => {
  expect(['"soak"', '3', 'true', '"3"', 'not JSON'].map(statusText)).toEqual(['soak', '3', 'true', '3', 'not JSON'])
})

test('what is typed becomes JSON', () => {
  expect(['soak', '3', '-1.5', 'true', '"3"', 'say "x"', ''].map(statusValue)).toEqual(['"soak"', '3', '-1.5', 'true', '"3"', '"say \\"x\\""', '""'])
})

test('an address is a filter', () => {
  const now = Date.parse('2026-11-23T12:00:59Z')
  const of = (text: string) => runFilterOf(new URLSearchParams(text), now)
  expect(of('')).toBeNull()
  expect(of('state=failed&since=never&label=team&status==x&q=%20')).toBeNull()
  expect(of('q=night&since=day&label=team=shop=1&status=phase = soak')).toEqual({
    idContains: 'night', startedAfter: '2026-11-22T12:00:00.000Z', labels: [{ key: 'team', value: 'shop=1' }], status: [{ key: 'phase', value: '"soak"' }],
  })
})

test('counts say when there may be more', () => {
  expect([countText({ count: 1, atLeast: false }), countText({ count: 10_000, atLeast: true })]).toEqual(['1 workflow', 'At least 10,000 workflows'])
})
