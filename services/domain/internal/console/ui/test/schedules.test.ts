// Issue 18, item 1.
import { expect, test } from 'vitest'
import { durationSeconds, durationText, instantOf, interval, localText, whenText } from '../src/logic/schedules'

test('an interval has its largest unit', () => {
  expect([1, 90, 60, 7_200, 86_400, 172_800, 90_000].map(interval)).toEqual(['every second', 'every 90 seconds', 'every minute', 'every 2 hours', 'every day', 'every 2 days', 'every 25 hours'])
})

test('a schedule says what it is due by, and the time zone of expressions only', () => {
  expect(whenText({ cron: ['0 3 * * *', '@weekly'], everySeconds: 0, timeZone: 'Europe/Berlin' })).toBe('0 3 * * *, @weekly (Europe/Berlin)')
  expect(whenText({ cron: [], everySeconds: 60, timeZone: 'UTC' })).toBe('every minute')
  expect(whenText({ cron: ['@daily'], everySeconds: 3_600, timeZone: 'UTC' })).toBe('@daily (UTC); every hour')
})

test('a duration is typed with units, and shown as it would be typed', () => {
  const all: Array<[number, string]> = [[0, ''], [45, '45s'], [90, '1m30s'], [3_600, '1h'], [129_600, '1d12h']]
  for (const [seconds, text] of all) {
    expect(durationText(seconds)).toBe(text)
    expect(durationSeconds(text)).toBe(seconds)
  }
  expect(durationSeconds(' 1d 12h ')).toBe(129_600)
  expect(['5', 'soon', '-1m', '1.5h', '1w'].map(durationSeconds)).toEqual([null, null, null, null, null])
})

test('a time that is typed is the same instant when it is read again', () => {
  for (const instant of ['2026-11-29T04:00:00.000Z', '2026-07-01T23:59:30.000Z']) expect(instantOf(localText(instant))).toBe(instant)
  expect([localText(null), instantOf(''), instantOf('nonsense')]).toEqual(['', null, null])
})
