// The form of one step of a pipeline. Its findings are located below the step.
import { useId, type ReactNode } from 'react'
import { environmentOf, type Step } from '../form/pipeline-steps'
import type { Offers } from '../form/offers'
import { isRecord, type Finding, type Json, type Schema } from '../form/schema'
import { SchemaForm } from '../form/SchemaForm'
import { Field, Problem, sentence } from './form'

interface StepProps {
  step: Step
  environments: string[]
  schema: Schema
  driver: string
  /** What a deploy step's configuration is when it is sent. */
  config: Json
  findings: Finding[]
  /** What the pickers of the driver's form offer. */
  offers: Offers
  onChange: (body: Json) => void
}

export function StepForm(props: StepProps) {
  const { step, findings, onChange } = props
  const { body } = step
  const at = (...path: string[]) => messageAt(findings, path)
  const set = (name: string, value: unknown) => onChange({ ...body, [name]: value })
  const shown = new Set(['', 'type'])
  return (
    <>
      <Problem message={at() ?? at('type')} />
      {body.type === 'deploy' ? (
        <Deploy {...props} />
      ) : body.type === 'pause' ? (
        <>
          <Line label="Name" value={body.name} onChange={(v) => set('name', v || undefined)} problem={at('name')} optional />
          <Numeral label="Seconds to wait" value={body.duration} onChange={(v) => set('duration', v)} problem={at('duration')} />
        </>
      ) : body.type === 'approval' ? (
        <>
          <Line label="Name" value={body.name} onChange={(v) => set('name', v || undefined)} problem={at('name')} optional help="What the gate is called." />
          <Rules value={body} path={[]} findings={findings} onChange={onChange} />
        </>
      ) : (
        <p className="help">A step of the type “{String(body.type)}” has no form here; edit it as JSON.</p>
      )}
      {findings.filter((f) => !placed(body, f) && !shown.has(f.path.join('/'))).map((f) => (
        <Problem key={f.path.join('/') + f.message} message={`${f.path.join(' › ')}: ${f.message}`} />
      ))}
    </>
  )
}

/** Whether some control shows a finding. */
function placed(body: Json, { path }: Finding): boolean {
  const rules = ['reason', 'quorum', 'group', 'requester_may_approve']
  switch (body.type) {
    case 'deploy':
      return path[0] === 'environment' || path[0] === 'config' || (path[0] === 'approval' && rules.includes(path[1] ?? '')) || (path[0] === 'gates' && path.length > 1)
    case 'approval':
      return path.length === 1 && [...rules, 'name'].includes(path[0] ?? '')
    case 'pause':
      return path.length === 1 && ['name', 'duration'].includes(path[0] ?? '')
    default:
      return false
  }
}

function messageAt(findings: Finding[], path: string[]): string | undefined {
  const found = findings.find((f) => f.path.join('/') === path.join('/'))
  return found && sentence(found.message)
}

function Deploy({ step, environments, schema, driver, config, findings, offers, onChange }: StepProps) {
  const id = useId()
  const asksId = useId()
  const { body } = step
  const approval = isRecord(body.approval) ? body.approval : null
  const mine = environmentOf(step)
  const below = (name: string) => findings.filter((f) => f.path[0] === name).map((f) => ({ ...f, path: f.path.slice(1) }))
  return (
    <>
      <Field id={id} label="Environment" problem={messageAt(findings, ['environment'])}>
        <select id={id} aria-describedby={`${id}-notes`} value={mine} onChange={(e) => onChange({ ...body, environment: e.target.value })}>
          {(environments.includes(mine) ? environments : [mine, ...environments]).map((e) => (
            <option key={e}>{e}</option>
          ))}
        </select>
      </Field>
      <Field id={asksId} label="An approval before it" inline>
        <input id={asksId} aria-describedby={`${asksId}-notes`} type="checkbox" checked={approval !== null} onChange={(e) => onChange({ ...body, approval: e.target.checked ? { reason: '' } : undefined })} />
      </Field>
      {approval && (
        <fieldset className="group">
          <legend>Who approves</legend>
          <Rules value={approval} path={['approval']} findings={findings} onChange={(v) => onChange({ ...body, approval: v })} />
        </fieldset>
      )}
      <Gates value={body.gates} findings={below('gates')} onChange={(gates) => onChange({ ...body, gates })} />
      <SchemaForm context={{ root: schema, driver, findings: below('config').map((f) => ({ ...f, message: sentence(f.message) })), ...offers }} value={config} onChange={(v) => onChange({ ...body, config: v })} />
    </>
  )
}

/** Who answers: the same for a step of its own, for an environment, and for a gate. */
function Rules({ value, path, findings, onChange }: { value: Json; path: string[]; findings: Finding[]; onChange: (value: Json) => void }) {
  const id = useId()
  const at = (name: string) => messageAt(findings, [...path, name])
  const set = (name: string, v: unknown) => onChange({ ...value, [name]: v })
  return (
    <>
      <Line label="What the one who approves should know" value={value.reason} onChange={(v) => set('reason', v)} problem={at('reason')} optional />
      <Numeral label="How many people" value={value.quorum} onChange={(v) => set('quorum', v)} problem={at('quorum')} min={1} max={20} optional help="One, if left empty." />
      <Line label="Group" value={value.group} onChange={(v) => set('group', v || undefined)} problem={at('group')} optional help="That they belong to; anybody with the role, if left empty." />
      <Field id={id} label="The requester of the rollout" problem={at('requester_may_approve')}>
        <select
          id={id}
          aria-describedby={`${id}-notes`}
          value={String(value.requester_may_approve ?? '')}
          onChange={(e) => set('requester_may_approve', e.target.value === '' ? undefined : e.target.value === 'true')}
        >
          <option value="">counts, but not in production</option>
          <option value="true">counts as an approver</option>
          <option value="false">does not count</option>
        </select>
      </Field>
    </>
  )
}

function Gates({ value, findings, onChange }: { value: unknown; findings: Finding[]; onChange: (gates: Json[]) => void }) {
  const gates = (Array.isArray(value) ? value : []).map((g) => (isRecord(g) ? g : {}))
  const set = (i: number, gate: Json) => onChange(gates.map((g, j) => (j === i ? gate : g)))
  const next = () => Math.min(100, Number(gates.at(-1)?.weight ?? 0) + 25)
  return (
    <fieldset className="group">
      <legend>Gates</legend>
      <p className="help">Shares of traffic at which all services stop and wait for each other. None: all at once.</p>
      {gates.map((g, i) => (
        <div className="gate-row" key={i} role="group" aria-label={`Gate ${i + 1}`}>
          <Numeral label="Percent" value={g.weight} min={1} max={100} onChange={(v) => set(i, { ...g, weight: v })} problem={messageAt(findings, [String(i), 'weight']) ?? messageAt(findings, [String(i)])} />
          <Numeral label="Then wait, seconds" value={g.soak_duration} min={0} onChange={(v) => set(i, { ...g, soak_duration: v })} problem={messageAt(findings, [String(i), 'soak_duration'])} optional />
          <label className="gate-asks">
            <input type="checkbox" checked={isRecord(g.approval)} onChange={(e) => set(i, { ...g, approval: e.target.checked ? { reason: '' } : undefined })} /> Asks for approval
          </label>
          <button type="button" className="quiet" aria-label={`Remove gate ${i + 1}`} onClick={() => onChange(gates.filter((_, j) => j !== i))}>
            Remove
          </button>
        </div>
      ))}
      <button type="button" onClick={() => onChange([...gates, { weight: next() }])}>
        Add a gate
      </button>
    </fieldset>
  )
}

interface LineProps {
  label: string
  value: unknown
  problem?: string | undefined
  help?: string
  optional?: boolean
}

function Line({ label, value, onChange, problem, help, optional }: LineProps & { onChange: (v: string) => void }): ReactNode {
  const id = useId()
  return (
    <Field id={id} label={label} help={help} problem={problem} optional={optional ?? false}>
      <input id={id} aria-describedby={`${id}-notes`} aria-invalid={problem ? true : undefined} type="text" autoComplete="off" value={typeof value === 'string' ? value : ''} onChange={(e) => onChange(e.target.value)} />
    </Field>
  )
}

function Numeral({ label, value, onChange, problem, help, optional, min = 0, max }: LineProps & { onChange: (v: number | undefined) => void; min?: number; max?: number }): ReactNode {
  const id = useId()
  return (
    <Field id={id} label={label} help={help} problem={problem} optional={optional ?? false}>
      <input
        id={id}
        aria-describedby={`${id}-notes`}
        aria-invalid={problem ? true : undefined}
        type="number"
        min={min}
        max={max}
        step={1}
        value={typeof value === 'number' ? value : ''}
        onChange={(e) => onChange(Number.isNaN(e.target.valueAsNumber) ? undefined : e.target.valueAsNumber)}
      />
    </Field>
  )
}
