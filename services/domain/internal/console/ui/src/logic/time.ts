// Times as people say them. The absolute one is never far: see Ago in parts/time.tsx.

const steps: Array<[unit: string, seconds: number]> = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
]

/** "42 s", "5 min", "3 h", "12 d". */
export function span(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000))
  for (const [unit, size] of steps) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`
  }
  return `${seconds} s`
}

/** "just now", "5 min ago". The clock of this machine may be a little behind the server's. */
export function ago(instant: string, now: number): string {
  const passed = now - Date.parse(instant)
  return passed < 10_000 ? 'just now' : `${span(passed)} ago`
}

/** "in 5 min"; "any moment" once it is past. */
export function due(instant: string, now: number): string {
  const left = Date.parse(instant) - now
  return left <= 0 ? 'any moment' : `in ${span(left)}`
}

export function absolute(instant: string): string {
  return new Date(instant).toLocaleString(undefined, { dateStyle: 'full', timeStyle: 'long' })
}

export function clockTime(instant: string): string {
  return new Date(instant).toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' })
}

/** "22:18"; with the day before it where it is not that of `now`. */
export function shortTime(instant: string, now: number): string {
  const at = new Date(instant)
  const time = at.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit' })
  if (at.toDateString() === new Date(now).toDateString()) return time
  return `${at.toLocaleDateString(undefined, { weekday: 'short', day: 'numeric', month: 'short' })}, ${time}`
}

/** Time that runs out, to the second where that matters: "2 h 5 min", "9 min 58 s", "42 s". */
export function remaining(milliseconds: number): string {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000))
  const [large, small] = seconds >= 86_400 ? [86_400, 3_600] : seconds >= 3_600 ? [3_600, 60] : [60, 1]
  const rest = Math.floor((seconds % large) / small) * small * 1000
  if (seconds < large) return span(seconds * 1000)
  return rest > 0 ? `${span(seconds * 1000)} ${span(rest)}` : span(seconds * 1000)
}

/** How much of the time between two instants has passed, from 0 to 1. Clocks differ, so it never leaves that range. */
export function progress(since: string, until: string, now: number): number {
  const whole = Date.parse(until) - Date.parse(since)
  if (!(whole > 0)) return 1
  return Math.min(1, Math.max(0, (now - Date.parse(since)) / whole))
}
