// One schedule: when it is due, what became of its last due times, and what can be done about it.
import { useState } from 'react'
import { Link, useParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { PauseSchedule, ResumeSchedule, TriggerSchedule, WorkflowSchedulePage, type WorkflowSchedulePageData } from '../api/generated'
import { useAsk } from '../api/hooks'
import { ability } from '../logic/ability'
import { interval, outcomeWords, overlapWords, whenText } from '../logic/schedules'
import { absolute } from '../logic/time'
import { ActButton } from '../parts/act'
import { Confirm } from '../parts/confirm'
import { NotThere, Page, Waiting } from '../parts/page'
import { Chip } from '../parts/state'
import { Ago, Due } from '../parts/time'
import { RunState } from './workflows'

type Schedule = NonNullable<WorkflowSchedulePageData['workflowSchedule']>

export default function ScheduleDetail() {
  const { name = '' } = useParams()
  const query = useAsk(WorkflowSchedulePage, { name }, { live: (d) => d.workflowSchedule?.fires.some((f) => f.outcome === 'STARTING') ?? false })
  if (query.data && !query.data.workflowSchedule) return <NotThere what="schedule" to="/schedules" list="All schedules" />
  const s = query.data?.workflowSchedule
  if (!s) return <Page title="Schedule"><Waiting query={query} what="schedule" /></Page>
  return (
    <Page
      title={s.name}
      name={s.name}
      above={<Link to="/schedules">schedules</Link>}
      lead={
        <p className="line">
          {s.paused && <Chip tone="wait" icon="paused" word="Paused" />} <span className="wrap">{whenText(s)}</span>
          {s.nextDueAt && (
            <span>
              next <Due at={s.nextDueAt} />
            </span>
          )}
        </p>
      }
      beside={<Acts schedule={s} />}
    >
      <div className="stack">
        {s.note && (
          <section className="card" aria-labelledby="note">
            <h2 id="note">Why it is {s.paused ? 'paused' : 'no longer paused'}</h2>
            <p className="wrap">{s.note}</p>
          </section>
        )}
        <section className="card" aria-labelledby="rules">
          <h2 id="rules">Rules</h2>
          <dl className="config">
            <div>
              <dt>While a run is under way</dt>
              <dd>{overlapWords[s.overlap]}</dd>
            </div>
            <div>
              <dt>Missed when late by more than</dt>
              <dd>{interval(s.catchUpSeconds).replace(/^every (?=\d)/, '').replace(/^every /, '1 ')}</dd>
            </div>
            <div>
              <dt>So far</dt>
              <dd>
                {s.started} started, {s.skipped} skipped, {s.missed} missed, {s.refused} refused
              </dd>
            </div>
          </dl>
        </section>
        {s.nextDueTimes.length > 0 && (
          <section className="card" aria-labelledby="next">
            <h2 id="next">Next</h2>
            <ol className="plain">
              {s.nextDueTimes.map((at) => (
                <li key={at}>
                  {absolute(at)}, <Due at={at} />
                </li>
              ))}
            </ol>
          </section>
        )}
        <section aria-labelledby="last">
          <h2 id="last">Last due times</h2>
          {s.fires.length === 0 ? <p className="faint">It was not due yet.</p> : <Fires fires={s.fires} />}
        </section>
        <p className="faint wrap">
          Program <code>{s.programDigest.slice(0, 12)}</code>, version {s.version} of the schedule
        </p>
      </div>
    </Page>
  )
}

function Fires({ fires }: { fires: Schedule['fires'] }) {
  return (
    <div className="scroll card" tabIndex={0} role="region" aria-label="Last due times">
      <table className="list">
        <thead>
          <tr>
            <th scope="col">Due</th>
            <th scope="col">Outcome</th>
            <th scope="col">Run</th>
          </tr>
        </thead>
        <tbody>
          {fires.map((f) => (
            <tr key={`${f.dueAt}/${f.outcome}`}>
              <th scope="row">
                <Ago at={f.dueAt} />
              </th>
              <td>
                {outcomeWords[f.outcome]}
                {f.count > 1 && <> {f.count} times</>}
                {f.requested && <span className="faint"> on request</span>}
                {f.detail && <div className="reason">{f.detail}</div>}
              </td>
              <td>
                {f.workflowState && (
                  <>
                    <RunState state={f.workflowState} /> <Link to={`/workflows/${encodeURIComponent(f.workflowId)}`}>{f.workflowId}</Link>
                  </>
                )}
                {f.workflowError && <div className="reason">{f.workflowError}</div>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function Acts({ schedule }: { schedule: Schedule }) {
  const [open, setOpen] = useState<'pause' | 'resume' | 'trigger' | null>(null)
  const input = (reason: string) => ({ input: { name: schedule.name, reason } })
  const close = () => setOpen(null)
  return (
    <span className="buttons">
      <ActButton ability={ability(schedule.viewerCan, 'triggerWorkflowSchedule')} onClick={() => setOpen('trigger')}>
        Start a run now
      </ActButton>
      {schedule.paused ? (
        <ActButton ability={ability(schedule.viewerCan, 'resumeWorkflowSchedule')} onClick={() => setOpen('resume')}>
          Resume
        </ActButton>
      ) : (
        <ActButton ability={ability(schedule.viewerCan, 'pauseWorkflowSchedule')} onClick={() => setOpen('pause')}>
          Pause
        </ActButton>
      )}
      {open === 'trigger' && (
        <Confirm title={`Start a run of ${schedule.name}`} submit="Start a run" tone="primary" reasoned done="A run was requested" onClose={close} send={async (reason) => accepted((await ask(TriggerSchedule, input(reason))).triggerWorkflowSchedule)}>
          <p>It starts as if it were due now. While another run is under way: {overlapWords[schedule.overlap]}.</p>
        </Confirm>
      )}
      {open === 'pause' && (
        <Confirm title={`Pause ${schedule.name}`} submit="Pause" reasoned done="Schedule paused" onClose={close} send={async (reason) => accepted((await ask(PauseSchedule, input(reason))).pauseWorkflowSchedule)}>
          <p>It starts nothing until it is resumed. Runs that are under way continue.</p>
        </Confirm>
      )}
      {open === 'resume' && (
        <Confirm title={`Resume ${schedule.name}`} submit="Resume" tone="primary" reasoned done="Schedule resumed" onClose={close} send={async (reason) => accepted((await ask(ResumeSchedule, input(reason))).resumeWorkflowSchedule)}>
          <p>What was due while it was paused is not started.</p>
        </Confirm>
      )}
    </span>
  )
}
