// Time that runs out: what happens then, when that is, and how much of it has passed.
import { useEffect, useState, type ReactNode } from 'react'
import { absolute, clockTime, progress, remaining, shortTime } from '../logic/time'

/** Once a second, unlike the relative times of a page: a person may want to act before it has run out. */
function useSeconds(until: string): number {
  const [now, setNow] = useState(Date.now)
  const over = now >= Date.parse(until)
  useEffect(() => {
    if (over) return
    const timer = setInterval(() => setNow(Date.now()), 1_000)
    return () => clearInterval(timer)
  }, [over, until])
  return now
}

interface CountdownProps {
  /** Since when it runs; null where that is not known: then there is no bar. */
  since: string | null
  until: string
  /** What the bar is of, for those who do not see it. */
  label: string
  children?: ReactNode
}

/** "12 s left", and a bar. Screen readers get the time, not every second of it. */
export function Countdown({ since, until, label, children }: CountdownProps) {
  const now = useSeconds(until)
  const left = Date.parse(until) - now
  return (
    <div className="countdown">
      <p className="line">
        {children}
        <span className="faint">
          <span aria-hidden="true">{left > 0 ? `${remaining(left)} left` : 'any moment'}</span>
          <time className="visually-hidden" dateTime={until} title={absolute(until)}>
            until {clockTime(until)}
          </time>
        </span>
      </p>
      {since && <progress aria-label={label} max={1} value={progress(since, until, now)} />}
    </div>
  )
}

/** "22:18", with the day where it is not today. */
export function At({ at }: { at: string }) {
  return (
    <time dateTime={at} title={absolute(at)}>
      {shortTime(at, Date.now())}
    </time>
  )
}
