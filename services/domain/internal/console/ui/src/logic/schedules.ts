// When schedules are due, in words.
import type { ScheduleOutcome, ScheduleOverlap } from '../api/generated'

const units: Array<[seconds: number, word: string]> = [
  [86_400, 'day'],
  [3_600, 'hour'],
  [60, 'minute'],
  [1, 'second'],
]

/** An interval of whole seconds, in the largest unit that it is a multiple of. */
export function interval(seconds: number): string {
  const [unit, word] = units.find(([u]) => seconds % u === 0) ?? [1, 'second']
  const count = seconds / unit
  return count === 1 ? `every ${word}` : `every ${count} ${word}s`
}

/** What a schedule is due by. The time zone is that of expressions. */
export function whenText({ cron, everySeconds, timeZone }: { cron: string[]; everySeconds: number; timeZone: string }): string {
  const expressions = cron.length > 0 ? [`${cron.join(', ')} (${timeZone})`] : []
  return [...expressions, ...(everySeconds > 0 ? [interval(everySeconds)] : [])].join('; ')
}

export const overlapWords: Record<ScheduleOverlap, string> = {
  SKIP: 'the due time is skipped',
  BUFFER_ONE: 'one due time waits for its end, others are skipped',
  BUFFER_ALL: 'up to 100 due times wait for its end',
  CANCEL_OTHER: 'it is cancelled, and the next one starts',
  ALLOW: 'the next one starts beside it',
}

export const outcomeWords: Record<ScheduleOutcome, string> = {
  WAITING: 'Waiting',
  STARTING: 'Starting',
  STARTED: 'Started',
  SKIPPED: 'Skipped',
  MISSED: 'Missed',
  REFUSED: 'Refused',
}
