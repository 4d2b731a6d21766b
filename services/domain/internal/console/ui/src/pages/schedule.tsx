// One schedule: when it is due, the outcomes of its last due times, what its runs are started with, and what can be done about it.
import { useId, useState } from 'react'
import { Link, useNavigate, useParams } from 'react-router'
import { accepted, ask } from '../api/client'
import {
  BackfillSchedule, DeleteSchedule, PauseSchedule, ResumeSchedule, TriggerSchedule, WorkflowSchedulePage, type ScheduleOverlap, type WorkflowSchedulePageData,
} from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { ability } from '../logic/ability'
import { durationText, instantOf, interval, outcomeWords, overlapWords, whenText } from '../logic/schedules'
import { absolute } from '../logic/time'
import { ActButton } from '../parts/act'
import { announce } from '../parts/announce'
import { Confirm } from '../parts/confirm'
import { Dialog } from '../parts/dialog'
import { Field, findingsUnder, FormError } from '../parts/form'
import { NotThere, Page, Waiting } from '../parts/page'
import { Reason } from '../parts/reason'
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
            {s.jitterSeconds > 0 && (
              <div>
                <dt>Each start is delayed by less than</dt>
                <dd>{durationText(s.jitterSeconds)}</dd>
              </div>
            )}
            {s.startAt && (
              <div>
                <dt>Not due before</dt>
                <dd>{absolute(s.startAt)}</dd>
              </div>
            )}
            {s.endAt && (
              <div>
                <dt>Not due from</dt>
                <dd>{absolute(s.endAt)}</dd>
              </div>
            )}
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
        {s.content && <Content content={s.content} />}
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

/** What its runs are started with. */
function Content({ content }: { content: NonNullable<Schedule['content']> }) {
  return (
    <section className="card" aria-labelledby="content">
      <h2 id="content">What its runs are started with</h2>
      <pre className="scroll" tabIndex={0} role="region" aria-label="Program">
        {content.program}
      </pre>
      <dl className="config">
        <div>
          <dt>Inputs</dt>
          <dd>
            <code className="wrap">{JSON.stringify(content.inputs)}</code>
          </dd>
        </div>
        {content.modules.length > 0 && (
          <div>
            <dt>Modules</dt>
            <dd>{content.modules.map((m) => m.name).join(', ')}</dd>
          </div>
        )}
        {content.labels.length > 0 && (
          <div>
            <dt>Labels</dt>
            <dd>{content.labels.map((l) => `${l.key}=${l.value}`).join(', ')}</dd>
          </div>
        )}
      </dl>
    </section>
  )
}

function Acts({ schedule }: { schedule: Schedule }) {
  const navigate = useNavigate()
  const [open, setOpen] = useState<'pause' | 'resume' | 'trigger' | 'backfill' | 'delete' | null>(null)
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
      <ActButton ability={ability(schedule.viewerCan, 'backfillWorkflowSchedule')} onClick={() => setOpen('backfill')}>
        Backfill
      </ActButton>
      <ActButton ability={ability(schedule.viewerCan, 'registerWorkflowSchedule')} onClick={() => void navigate(`/edit-schedule/${encodeURIComponent(schedule.name)}`)}>
        Change
      </ActButton>
      <ActButton ability={ability(schedule.viewerCan, 'deleteWorkflowSchedule')} onClick={() => setOpen('delete')}>
        Delete
      </ActButton>
      {open === 'trigger' && (
        <Confirm title={`Start a run of ${schedule.name}`} submit="Start a run" tone="primary" reasoned done="A run was requested" onClose={close} send={async (reason) => accepted((await ask(TriggerSchedule, input(reason))).triggerWorkflowSchedule)}>
          <p>It starts as if it were due now. While another run is under way: {overlapWords[schedule.overlap]}.</p>
        </Confirm>
      )}
      {open === 'pause' && (
        <Confirm title={`Pause ${schedule.name}`} submit="Pause" reasoned done="Schedule paused" onClose={close} send={async (reason) => accepted((await ask(PauseSchedule, input(reason))).pauseWorkflowSchedule)}>
          <p>It starts nothing until it is resumed. Runs that are under way continue. The reason is shown with the schedule.</p>
        </Confirm>
      )}
      {open === 'resume' && (
        <Confirm title={`Resume ${schedule.name}`} submit="Resume" tone="primary" reasoned done="Schedule resumed" onClose={close} send={async (reason) => accepted((await ask(ResumeSchedule, input(reason))).resumeWorkflowSchedule)}>
          <p>What was due while it was paused is not started; it can be backfilled.</p>
        </Confirm>
      )}
      {open === 'delete' && (
        <Confirm
          title={`Delete ${schedule.name}`}
          submit="Delete"
          reasoned
          done={`${schedule.name} was deleted`}
          onClose={close}
          send={async (reason) => {
            accepted((await ask(DeleteSchedule, input(reason))).deleteWorkflowSchedule)
            void navigate('/schedules')
          }}
        >
          <p>It is gone with the outcomes of its due times. Runs that it has started continue.</p>
        </Confirm>
      )}
      {open === 'backfill' && <Backfill name={schedule.name} onClose={close} />}
    </span>
  )
}

/** Runs for the due times of a range that have none. */
function Backfill({ name, onClose }: { name: string; onClose: () => void }) {
  const id = useId()
  const [from, setFrom] = useState('')
  const [to, setTo] = useState('')
  const [overlap, setOverlap] = useState<ScheduleOverlap>('BUFFER_ALL')
  const [reason, setReason] = useState('')
  const change = useChange(
    async () => accepted((await ask(BackfillSchedule, { input: { name, from: instantOf(from) ?? '', to: instantOf(to) ?? '', overlap, reason } })).backfillWorkflowSchedule),
    ({ due, added }) => {
      announce(due === 0 ? 'It was not due in this range' : `${added} of ${due} due times get a run`)
      onClose()
    },
  )
  const problem = (field: string) => findingsUnder(change.error, field)[0]?.message
  return (
    <Dialog title={`Backfill ${name}`} submit="Backfill" busy={change.isPending} disabled={!instantOf(from) || !instantOf(to)} onSubmit={() => change.mutate(undefined)} onClose={onClose}>
      <p>Starts runs for the due times of a range that have none, also while the schedule is paused. Times are those of your time zone.</p>
      <Field id={`${id}-from`} label="From" problem={problem('from')}>
        <input id={`${id}-from`} aria-describedby={`${id}-from-notes`} type="datetime-local" step={1} required value={from} onChange={(e) => setFrom(e.target.value)} />
      </Field>
      <Field id={`${id}-to`} label="Until" help="Not included. It has passed." problem={problem('to')}>
        <input id={`${id}-to`} aria-describedby={`${id}-to-notes`} type="datetime-local" step={1} required value={to} onChange={(e) => setTo(e.target.value)} />
      </Field>
      <Overlap id={`${id}-overlap`} label="While another run is under way" value={overlap} onChange={setOverlap} />
      <Reason value={reason} onChange={setReason} />
      <FormError error={change.error} shown={([field]) => field === 'from' || field === 'to'} />
    </Dialog>
  )
}

/** A choice of what happens to a due time while another run is under way. */
export function Overlap({ id, label, value, onChange }: { id: string; label: string; value: ScheduleOverlap; onChange: (v: ScheduleOverlap) => void }) {
  return (
    <Field id={id} label={label}>
      <select id={id} aria-describedby={`${id}-notes`} value={value} onChange={(e) => onChange(e.target.value as ScheduleOverlap)}>
        {(Object.entries(overlapWords) as Array<[ScheduleOverlap, string]>).map(([policy, words]) => (
          <option key={policy} value={policy}>
            {words}
          </option>
        ))}
      </select>
    </Field>
  )
}
