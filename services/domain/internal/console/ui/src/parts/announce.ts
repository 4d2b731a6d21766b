// Says what has happened: in a line at the bottom of the page, and to screen readers. Politely, and one thing at a time.
import { useSyncExternalStore } from 'react'

let current = ''
let timer: ReturnType<typeof setTimeout> | undefined
const listeners = new Set<() => void>()

function set(text: string) {
  current = text
  for (const l of listeners) l()
}

export function announce(text: string): void {
  clearTimeout(timer)
  set(text)
  timer = setTimeout(() => set(''), 6000)
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
