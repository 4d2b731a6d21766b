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
