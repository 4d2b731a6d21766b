// One clock for the whole page, so that relative times move together and rarely.
import { useSyncExternalStore } from 'react'
import { absolute, ago, due } from '../logic/time'

const beat = 5_000
let now = Date.now()
const listeners = new Set<() => void>()
let timer: ReturnType<typeof setInterval> | undefined

function tick() {
  now = Date.now()
  for (const l of listeners) l()
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  timer ??= setInterval(tick, beat)
  return () => {
    listeners.delete(listener)
    if (listeners.size === 0) {
      clearInterval(timer)
      timer = undefined
    }
  }
}

export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now, () => now)
}

/** "5 min ago", with the absolute time on hover. */
export function Ago({ at }: { at: string }) {
  return (
    <time dateTime={at} title={absolute(at)}>
      {ago(at, Math.max(useNow(), now))}
    </time>
  )
}

/** "in 5 min", "overdue", with the absolute time on hover. */
export function Due({ at }: { at: string }) {
  return (
    <time dateTime={at} title={absolute(at)}>
      {due(at, useNow())}
    </time>
  )
}
