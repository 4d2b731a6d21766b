// The timeline of a run: a lane for each branch, a bar for each step, and what went into the chosen one and came out of it.
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { Link } from 'react-router'
import { ask } from '../api/client'
import { WorkflowTimeline } from '../api/generated'
import { sentence } from './form'
import { lanesOf, looks, lookOf, titleOf, took, type Step, type Timeline as Data } from '../logic/timeline'
import { clockTime } from '../logic/time'
import { Waiting } from './page'

const page = 100

/** The newest steps of a run, or those before an entry. It is read again when the run has made progress. */
export function Timeline({ id, seen, live }: { id: string; seen: number; live: boolean }) {
  const [before, setBefore] = useState(0)
  const [chosen, setChosen] = useState<string | null>(null)
  const query = useQuery({
    queryKey: ['WorkflowTimeline', id, before, before ? 0 : seen],
    queryFn: async () => (await ask(WorkflowTimeline, { id, first: page, before })).workflow?.timeline ?? null,
    placeholderData: keepPreviousData,
  })
  const now = useNow(live && before === 0)
  if (!query.data) return <Waiting query={query} what="timeline" />
  const timeline = query.data
  if (timeline.steps.length === 0) return <p className="faint">It has done nothing yet.</p>
  const step = timeline.steps.find((s) => keyOf(s) === chosen)
  return (
    <div className="timeline">
      {timeline.gap && <p className="faint wrap">When some steps began, and what went into them, is not known: {timeline.gap}</p>}
      <Lanes timeline={timeline} now={now} chosen={chosen} choose={setChosen} />
      <p className="legend faint" aria-hidden="true">
        {looks.map(([look, label]) => (
          <span key={look}>
            <i className={`bar ${look}`} /> {label}
          </span>
        ))}
      </p>
      {step ? <Chosen step={step} inputs={timeline.inputs} now={now} /> : <p className="faint">Choose a step to see what went into it and what came out.</p>}
      <p className="buttons">
        {timeline.earlier && (
          <button type="button" onClick={() => setBefore(timeline.steps[0]?.sequence ?? 0)}>
            Earlier steps
          </button>
        )}
        {before > 0 && (
          <button type="button" onClick={() => setBefore(0)}>
            Newest steps
          </button>
        )}
      </p>
    </div>
  )
}

/** What a step is known by, also after it has ended. */
function keyOf(s: Step): string {
  return s.branch < 0 || s.sequence > 0 ? `${s.sequence}` : `${s.branch}/${s.kind}/${s.beganAt}`
}

interface LanesProps {
  timeline: Data
  now: number
  chosen: string | null
  choose: (key: string) => void
}

function Lanes({ timeline, now, chosen, choose }: LanesProps) {
  const { lanes, from, to } = lanesOf(timeline, now)
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Timeline">
      <ol className="lanes" aria-label="Branches of the program">
        {lanes.map((lane) => (
          <li key={lane.branch}>
            <span className="name">
              Branch {lane.branch}
              {lane.parent >= 0 && <span className="faint"> of {lane.parent}</span>}
            </span>
            <ol className="bars" aria-label={`Steps of branch ${lane.branch}`}>
              {lane.bars.map((bar) => {
                const step = timeline.steps[bar.index] as Step
                const key = keyOf(step)
                return (
                  <li key={key}>
                    <button
                      type="button"
                      className={`bar ${bar.look}${bar.open ? ' open' : ''}${bar.width === 0 ? ' mark' : ''}`}
                      style={{ left: bar.place, width: `${bar.width}%` }}
                      aria-pressed={key === chosen}
                      aria-label={`${titleOf(step)}, ${step.endedAt ? took(Date.parse(step.endedAt) - Date.parse(step.beganAt)) : 'open'}${step.code ? `, failed: ${step.code}` : ''}`}
                      title={titleOf(step)}
                      onClick={() => choose(key)}
                    />
                  </li>
                )
              })}
            </ol>
          </li>
        ))}
      </ol>
      <p className="axis faint">
        <time dateTime={new Date(from).toISOString()}>{clockTime(new Date(from).toISOString())}</time>
        <span>{took(to - from)}</span>
        <time dateTime={new Date(to).toISOString()}>{clockTime(new Date(to).toISOString())}</time>
      </p>
    </div>
  )
}

function Chosen({ step, inputs, now }: { step: Step; inputs: boolean; now: number }) {
  const ended = step.endedAt ? Date.parse(step.endedAt) : now
  return (
    <section className="chosen" aria-label="The chosen step">
      <h3>
        <i className={`bar ${lookOf(step)}`} aria-hidden="true" /> <span className="mono wrap">{titleOf(step)}</span>
      </h3>
      <p className="faint">
        {step.sequence > 0 && <>Step {step.sequence}, </>}
        {step.branch >= 0 && <>branch {step.branch}, </>}
        {clockTime(step.beganAt)}, {step.endedAt ? 'took' : 'open for'} {took(ended - Date.parse(step.beganAt))}
        {step.until && <>, at the longest until {clockTime(step.until)}</>}
        {step.attempt > 1 && <>, sent {step.attempt} times</>}
        {step.position && (
          <>
            {' '}
            at <code>{step.position}</code>
          </>
        )}
      </p>
      {step.child && (
        <p>
          It started <Link to={`/workflows/${encodeURIComponent(step.child)}`}>{step.child}</Link>
        </p>
      )}
      <Retries step={step} now={now} />
      {step.code && <p className="problem">{sentence(step.code)}</p>}
      <Value label="Input" text={step.input} truncated={step.inputTruncated} />
      {!inputs && <p className="faint">Inputs are shown to those who may retry workflows.</p>}
      <Value label={step.code ? 'Error' : 'Output'} text={step.output} truncated={step.outputTruncated} />
    </section>
  )
}

/** The attempts that failed before the one that decided, or so far. */
function Retries({ step, now }: { step: Step; now: number }) {
  if (step.retriesCount === 0) return null
  const hidden = step.retriesCount - step.retries.length
  const last = step.retries[step.retries.length - 1]
  return (
    <>
      <h4>Failed attempts: {step.retriesCount}</h4>
      <ol className="retries">
        {step.retries.map((r) => (
          <li key={`${r.number} ${r.endedAt}`} className="wrap">
            Attempt {r.number}, {clockTime(r.beganAt ?? r.endedAt)}
            {r.beganAt && <>, took {took(Date.parse(r.endedAt) - Date.parse(r.beganAt))}</>}: {sentence(r.code)} <span className="faint">{r.message}</span>
          </li>
        ))}
      </ol>
      {hidden > 0 && <p className="faint">{hidden} between the first and the last ones are not shown.</p>}
      {!step.endedAt && last?.nextAt && Date.parse(last.nextAt) > now && <p className="faint">The next attempt is at {clockTime(last.nextAt)}.</p>}
    </>
  )
}

function Value({ label, text, truncated }: { label: string; text: string; truncated: boolean }) {
  if (!text || text === 'null') return null
  return (
    <>
      <h4>{label}</h4>
      <pre tabIndex={0}>{pretty(text)}</pre>
      {truncated && <p className="faint">It is longer; the rest is not shown.</p>}
    </>
  )
}

function pretty(value: string): string {
  try {
    return JSON.stringify(JSON.parse(value), null, 2)
  } catch {
    return value
  }
}

/** The time, again and again while something is open. */
function useNow(ticking: boolean): number {
  const [now, setNow] = useState(() => Date.now())
  useEffect(() => {
    if (!ticking) return
    const timer = setInterval(() => setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [ticking])
  return now
}
