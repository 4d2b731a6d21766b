// Of a long list only the first items are drawn, until a person asks for more: thousands of rows are slow to draw and slower to read.
import { useState, type ReactNode } from 'react'

/** The first of all, and the button that shows more of them; null where there are none. Each time there come ten times as many as at first. */
export function useFirst<T>(all: T[], step: number, what: string): [shown: T[], more: ReactNode] {
  const [most, setMost] = useState(step)
  const left = all.length - most
  if (left <= 0) return [all, null]
  const next = Math.min(left, step * 10)
  return [
    all.slice(0, most),
    <p className="fold" key="fold">
      <button type="button" className="quiet" onClick={() => setMost(most + next)}>
        Show {next === left ? `the other ${next}` : `${next} more`} {what}
      </button>{' '}
      <span className="faint">
        {most} of {all.length} shown
      </span>
    </p>,
  ]
}
