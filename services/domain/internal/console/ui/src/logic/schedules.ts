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

const letters: Array<[seconds: number, letter: string]> = [
  [86_400, 'd'],
  [3_600, 'h'],
  [60, 'm'],
  [1, 's'],
]

/** Seconds as people type them: 90 s is 1m30s. Nothing for 0. */
export function durationText(seconds: number): string {
  let rest = seconds
  let text = ''
  for (const [unit, letter] of letters) {
    const count = Math.floor(rest / unit)
    if (count > 0) text += `${count}${letter}`
    rest -= count * unit
  }
  return text
}

/** The seconds of a text such as 1h30m or 1d 12h; 0 for none, and null for a text that is no duration. */
export function durationSeconds(text: string): number | null {
  const parts = text.trim()
  if (!/^(\d{1,9}[dhms]\s*)*$/.test(parts)) return null
  let sum = 0
  for (const [, count, letter] of parts.matchAll(/(\d+)([dhms])/g)) sum += Number(count) * (letters.find(([, l]) => l === letter)?.[0] ?? 0)
  return sum
}

/** An instant as the browser's field for a time has it, in the viewer's time zone; nothing for none. */
export function localText(instant: string | null | undefined): string {
  if (!instant) return ''
  const at = new Date(instant)
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
}

/** The instant of such a field; null for none. */
export function instantOf(text: string): string | null {
  const at = new Date(text)
  return text === '' || Number.isNaN(at.getTime()) ? null : at.toISOString()
}
