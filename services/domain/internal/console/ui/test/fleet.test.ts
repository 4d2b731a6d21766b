// D61: what waves need is shown beside them.
import { expect, test } from 'vitest'
import { fleetTerms } from '../src/logic/fleet'

test('thresholds, interval and freshness are sentences', () => {
  const fleet = {
    selector: { region: 'eu' }, waves: [{ targets: 2 }], interval_seconds: 300, freshness_seconds: 3600,
    success: { wave: { min_healthy_percent: 90, max_failed: 2 }, overall: { max_failed: 3 } },
  }
  expect(fleetTerms(fleet, false)).toEqual([
    'Each wave needs at least 90 % healthy and at most 2 failed.', 'All waves together need at most 3 failed.',
    'A wave waits 5m after the end of the one before.', 'It does not begin if the one before ended more than 1h ago.',
  ])
})

test('without thresholds every target has to be healthy', () => {
  expect(fleetTerms({ waves: [{ percent: 10 }] }, false)).toEqual(['Every target has to be healthy.'])
  expect(fleetTerms({ success: { wave: { max_failed: 0 } } }, false)).toEqual(['Each wave needs at most 0 failed.'])
})

test('a rollback waits for nothing between its waves', () => {
  expect(fleetTerms({ interval_seconds: 60, freshness_seconds: 60 }, true)).toEqual([
    'A rollback continues whatever fails, and is judged after its last wave.', 'Every target has to be healthy.',
  ])
})

test('an environment of one cluster has no terms', () => {
  expect(fleetTerms(null, false)).toEqual([])
})
