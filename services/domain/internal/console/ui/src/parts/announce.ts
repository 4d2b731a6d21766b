// Says what has happened: in a line at the bottom of the page, and to screen readers. Politely, and one thing at a time. The line goes away
// by itself, and at once when it may be in the way: when something is pressed, typed or scrolled.
import { useSyncExternalStore } from 'react'

let current = ''
let timer: ReturnType<typeof setTimeout> | undefined
const listeners = new Set<() => void>()

function set(text: string) {
  current = text
  for (const l of listeners) l()
}

const dismissals = ['pointerdown', 'keydown', 'wheel', 'touchmove'] as const

/** So long a line stays at least: what was pressed to make something happen is not yet over. */
const atLeast = 600

export function announce(text: string): void {
  clearTimeout(timer)
  set(text)
  const since = performance.now()
  const dismiss = () => {
    clearTimeout(timer)
    for (const name of dismissals) removeEventListener(name, early)
    if (current === text) set('')
  }
  const early = () => {
    if (performance.now() - since > atLeast) dismiss()
  }
  for (const name of dismissals) addEventListener(name, early, { passive: true })
  timer = setTimeout(dismiss, 6000)
}

export function useAnnouncement(): string {
  return useSyncExternalStore(
    (l) => {
      listeners.add(l)
      return () => listeners.delete(l)
    },
    () => current,
  )
}
