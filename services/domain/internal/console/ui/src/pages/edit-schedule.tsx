// A new schedule, or a change of one: when it is due, and what its runs are started with. A change is of the version that was read.
import { useId, useState } from 'react'
import { Link, useNavigate, useParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { RegisterSchedule, WorkflowScheduleContent, type ScheduleOverlap, type WorkflowScheduleContentData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { durationSeconds, durationText, instantOf, localText } from '../logic/schedules'
import { announce } from '../parts/announce'
import { Field, findingsUnder, FormError } from '../parts/form'
import { NotThere, Page, Waiting } from '../parts/page'
import { useUnsaved } from '../parts/unsaved'
import { Text } from './new-application'
import { Overlap } from './schedule'

type Schedule = NonNullable<WorkflowScheduleContentData['workflowSchedule']>

export default function EditSchedule() {
  const { name = '' } = useParams()
  const isNew = name === ''
  const query = useAsk(WorkflowScheduleContent, { name }, { enabled: !isNew, once: true })
  const title = isNew ? 'New schedule' : `Change ${name}`
  const above = <Link to={isNew ? '/schedules' : `/schedules/${encodeURIComponent(name)}`}>{isNew ? 'schedules' : name}</Link>
  if (!isNew && query.data && !query.data.workflowSchedule) return <NotThere what="schedule" to="/schedules" list="All schedules" />
  const found = query.data?.workflowSchedule ?? null
  return (
    <Page title={title} above={above} lead={<p>A Starlark program that the engine starts at given times.</p>}>
      {isNew || found ? <Form schedule={found} /> : <Waiting query={query} what="schedule" />}
    </Page>
  )
}

const example = `# The input schedule has the schedule's name and the due time.
print(schedule.name, schedule.due_at)
`

/** What the form holds, as text. */
function initial(s: Schedule | null) {
  return {
    name: s?.name ?? '',
    cron: s?.cron.join('\n') ?? '',
    every: durationText(s?.everySeconds ?? 0),
    timeZone: s?.timeZone ?? Intl.DateTimeFormat().resolvedOptions().timeZone,
    startAt: localText(s?.startAt),
    endAt: localText(s?.endAt),
    jitter: durationText(s?.jitterSeconds ?? 0),
    catchUp: durationText(s?.catchUpSeconds ?? 600),
    program: s ? (s.content?.program ?? '') : example,
    inputs: JSON.stringify(s?.content?.inputs ?? {}, null, 2),
  }
}

/** The lines that are not empty. */
const lines = (text: string) => text.split('\n').map((l) => l.trim()).filter((l) => l !== '')

function object(text: string): object | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : null
  } catch {
    return null
  }
}

const noDuration = 'Expected a duration such as 90s, 15m, 1h30m or 1d.'

function Form({ schedule }: { schedule: Schedule | null }) {
  const id = useId()
  const navigate = useNavigate()
  const [from] = useState(schedule) // what is edited stays that of the version that was read
  const [given, setGiven] = useState(() => initial(from))
  const [overlap, setOverlap] = useState<ScheduleOverlap>(from?.overlap ?? 'SKIP')
  const [paused, setPaused] = useState(false)
  const [reason, setReason] = useState('')
  const before = initial(from)
  const dirty = (Object.keys(before) as Array<keyof typeof before>).some((k) => before[k] !== given[k]) || overlap !== (from?.overlap ?? 'SKIP')
  const saved = useUnsaved(dirty)
  const set = (field: keyof typeof before) => (value: string) => setGiven((g) => ({ ...g, [field]: value }))
  const [every, jitter, catchUp] = [given.every, given.jitter, given.catchUp].map(durationSeconds)
  const inputs = object(given.inputs)
  const local: Record<string, string | undefined> = {
    everySeconds: every === null ? noDuration : undefined,
    jitterSeconds: jitter === null ? noDuration : undefined,
    catchUpSeconds: catchUp === null ? noDuration : undefined,
    inputs: inputs ? undefined : 'Expected a JSON object.',
  }
  const change = useChange(
    async () => {
      const input = {
        name: given.name, version: from?.version ?? 0, cron: lines(given.cron), everySeconds: every ?? 0, anchorAt: from?.anchorAt ?? null, timeZone: given.timeZone,
        startAt: instantOf(given.startAt), endAt: instantOf(given.endAt), jitterSeconds: jitter ?? 0, overlap, catchUpSeconds: catchUp || 600, paused, reason,
        program: from && given.program === before.program ? null : given.program, inputs: from && given.inputs === before.inputs ? null : inputs,
      }
      return accepted((await ask(RegisterSchedule, { input })).registerWorkflowSchedule)
    },
    (payload) => {
      saved()
      announce(`Version ${payload.schedule?.version ?? ''} of ${given.name} is registered.`)
      void navigate(`/schedules/${encodeURIComponent(given.name)}`)
    },
  )
  const problem = (field: string) => local[field] ?? findingsUnder(change.error, field)[0]?.message
  const shown = ['name', 'cron', 'everySeconds', 'timeZone', 'startAt', 'endAt', 'jitterSeconds', 'catchUpSeconds', 'program', 'inputs', 'reason']
  const wrong = Object.values(local).some((p) => p !== undefined)
  const area = (field: 'cron' | 'program' | 'inputs', label: string, rows: number, help: string) => (
    <Field id={`${id}-${field}`} label={label} help={help} problem={problem(field)}>
      <textarea id={`${id}-${field}`} aria-describedby={`${id}-${field}-notes`} aria-invalid={problem(field) ? true : undefined} rows={rows} spellCheck={false} value={given[field]} onChange={(e) => set(field)(e.target.value)} />
    </Field>
  )
  const time = (field: 'startAt' | 'endAt', label: string) => (
    <Field id={`${id}-${field}`} label={label} help="In your time zone." problem={problem(field)} optional>
      <input id={`${id}-${field}`} aria-describedby={`${id}-${field}-notes`} type="datetime-local" step={1} value={given[field]} onChange={(e) => set(field)(e.target.value)} />
    </Field>
  )
  return (
    <form
      className="card form"
      onSubmit={(e) => {
        e.preventDefault()
        if (!wrong) change.mutate(undefined)
      }}
    >
      {!from && <Text label="Name" value={given.name} onChange={set('name')} problem={problem('name')} field="name" help="Lower-case letters, digits, “.”, “_” and “-”." />}
      {area('cron', 'Cron expressions', 3, 'One a line: minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @yearly.')}
      <Text label="Time zone of the expressions" value={given.timeZone} onChange={set('timeZone')} problem={problem('timeZone')} field="timeZone" help="Such as Europe/Berlin." />
      <Text label="Interval" value={given.every} onChange={set('every')} problem={problem('everySeconds')} field="everySeconds" help="Such as 90s, 15m or 1h30m. It is due by the interval as well as by the expressions." optional />
      {time('startAt', 'Not due before')}
      {time('endAt', 'Not due from')}
      <Text label="Jitter" value={given.jitter} onChange={set('jitter')} problem={problem('jitterSeconds')} field="jitterSeconds" help="Each start is delayed by less than this, at most an hour." optional />
      <Overlap id={`${id}-overlap`} label="While another run is under way" value={overlap} onChange={setOverlap} />
      <Text label="Missed when late by more than" value={given.catchUp} onChange={set('catchUp')} problem={problem('catchUpSeconds')} field="catchUpSeconds" help="From 10s to 7d." />
      {area('program', 'Program', 16, 'Starlark. Its inputs are its globals; schedule has the name and the due time.')}
      {from && from.content && from.content.modules.length > 0 && (
        <p className="help">It keeps its modules: {from.content.modules.map((m) => m.name).join(', ')}.</p>
      )}
      {area('inputs', 'Inputs', 4, 'A JSON object; each member becomes a global of the program.')}
      {!from && (
        <p>
          <label>
            <input type="checkbox" checked={paused} onChange={(e) => setPaused(e.target.checked)} /> Begins paused
          </label>
        </p>
      )}
      <Text label="Reason" value={reason} onChange={setReason} problem={problem('reason')} field="reason" help="It is kept in the journal." optional />
      <FormError error={change.error} shown={([field]) => shown.includes(field ?? '')} />
      <div className="actions">
        <button type="submit" className="primary" disabled={change.isPending || wrong}>
          {change.isPending ? 'Saving…' : from ? `Save version ${from.version + 1}` : 'Register'}
        </button>
      </div>
    </form>
  )
}
