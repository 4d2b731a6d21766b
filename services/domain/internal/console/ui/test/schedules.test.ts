// Issue 18, item 1.
import { expect, test } from 'vitest'
import { interval, whenText } from '../src/logic/schedules'

test('an interval has its largest unit', () => {
  expect([1, 90, 60, 7_200, 86_400, 172_800, 90_000].map(interval)).toEqual(['every second', 'every 90 seconds', 'every minute', 'every 2 hours', 'every day', 'every 2 days', 'every 25 hours'])
})

test('a schedule says what it is due by, and the time zone of expressions only', () => {
  expect(whenText({ cron: ['0 3 * * *', '@weekly'], everySeconds: 0, timeZone: 'Europe/Berlin' })).toBe('0 3 * * *, @weekly (Europe/Berlin)')
  expect(whenText({ cron: [], everySeconds: 60, timeZone: 'UTC' })).toBe('every minute')
  expect(whenText({ cron: ['@daily'], everySeconds: 3_600, timeZone: 'UTC' })).toBe('@daily (UTC); every hour')
})
