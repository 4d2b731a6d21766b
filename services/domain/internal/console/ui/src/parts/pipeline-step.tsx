// The form of one step of a pipeline: what most pipelines have by hand, everything else from the schema of pipelines, so that no member of a
// step is without a form. Its findings are located below the step.
import { useId, type ReactNode } from 'react'
import { environmentOf, type Step } from '../form/pipeline-steps'
import type { Offers } from '../form/offers'
import { isRecord, partOf, prune, type Finding, type Json, type Schema, type SchemaObject } from '../form/schema'
import { SchemaForm, showsAt } from '../form/SchemaForm'
import { Field, Problem, sentence } from './form'

interface StepProps {
  /** What people call an environment of a name. */
  called: (environment: string) => string
  step: Step
  environments: string[]
  /** The environments that steps before this one deploy to. */
  earlier: string[]
  /** Where a job may run: the earlier environments, or in a runbook all. */
  targets: string[]
  /** The schema of pipelines, with the check kinds that are installed. */
  pipeline: Schema
  schema: Schema
  driver: string
  /** What a deploy step's configuration is when it is sent. */
  config: Json
  findings: Finding[]
  /** What the pickers of the driver's form offer. */
  offers: Offers
  onChange: (body: Json) => void
}

/** The fields of each type of step that have controls of their own here. */
const byHand: Record<string, string[]> = {
  deploy: ['environment', 'approval', 'gates', 'config', 'follows'],
  pause: ['name', 'duration'],
  approval: ['name', 'reason', 'quorum', 'group', 'requester_may_approve', 'expires_after', 'on_expiry'],
  job: ['environment'],
}

/** The form of what is left of a step. */
const restOf = (pipeline: Schema, body: Json) => partOf(pipeline, { $ref: '#/$defs/step' }, body, ['type', ...(byHand[String(body.type)] ?? [])])

export function StepForm(props: StepProps) {
  const { step, targets, pipeline, findings, onChange } = props
  const { body } = step
  const at = (...path: string[]) => messageAt(findings, path)
  const set = (name: string, value: unknown) => onChange({ ...body, [name]: value })
  const rest = restOf(pipeline, body)
  const unknown = !(String(body.type) in byHand) && Object.keys(rest.properties ?? {}).length === 0
  const shown = (f: Finding) => unknown || ['', 'type'].includes(f.path.join('/')) || placed(props, f) || (f.path[0]! in (rest.properties ?? {}) && showsAt(rest, rest, body, f.path))
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
      ) : body.type === 'job' ? (
        <Choice label="Environment" value={String(body.environment ?? '')} options={targets} called={props.called} problem={at('environment')} onChange={(v) => set('environment', v)} />
      ) : unknown ? (
        <AsJson name="step" value={body} findings={findings} onChange={onChange} />
      ) : null}
      <Rest schema={rest} body={body} findings={findings} folded={body.type === 'deploy' ? 'Jobs, checks and deadline' : undefined} onChange={onChange} />
      {findings.filter((f) => !shown(f)).map((f) => (
        <Problem key={f.path.join('/') + f.message} message={`${f.path.join(' › ')}: ${f.message}`} />
      ))}
    </>
  )
}

/** What has no form: the value as JSON, and nothing beside it. */
function AsJson({ name, value, findings, onChange }: { name: string; value: Json; findings: Finding[]; onChange: (value: Json) => void }) {
  const root: Schema = { type: 'object', required: [name], properties: { [name]: { type: 'object' } } }
  const mine = findings.map((f) => ({ path: [name, ...f.path], message: sentence(f.message) }))
  return <SchemaForm context={{ root, driver: 'pipeline', findings: mine, agents: [] }} value={{ [name]: value }} onChange={(v) => isRecord(v[name]) && onChange(v[name])} />
}

interface RestProps {
  schema: SchemaObject
  body: Json
  findings: Finding[]
  /** What it is called where it is folded away; undefined where it is not. */
  folded: string | undefined
  onChange: (body: Json) => void
}

/** The fields of a part of a pipeline, by reflection. What the part has besides is kept. */
export function Rest({ schema, body, findings, folded, onChange }: RestProps) {
  const names = Object.keys(schema.properties ?? {})
  if (names.length === 0) return null
  const mine = findings.filter((f) => names.includes(f.path[0] ?? ''))
  const form = (
    <SchemaForm
      context={{ root: schema, driver: 'pipeline', findings: mine.map((f) => ({ ...f, message: sentence(f.message) })), agents: [] }}
      value={body}
      onChange={(v) => onChange(prune(schema, schema, v) as Json)}
    />
  )
  if (folded === undefined) return form
  const count = names.filter((n) => body[n] !== undefined).length
  return (
    <details className="optional" open={mine.length > 0 || undefined}>
      <summary>
        {folded}
        {count > 0 && ` (${count} set)`}
      </summary>
      {form}
    </details>
  )
}

/** Whether a control of its own, or the driver's form, shows a finding. */
function placed({ step: { body }, schema, config }: StepProps, { path: [first = '', ...rest] }: Finding): boolean {
  if (!byHand[String(body.type)]?.includes(first)) return false
  const rules = byHand.approval?.includes(rest[0] ?? '') && rest[0] !== 'name'
  switch (first) {
    case 'config':
      return typeof schema === 'boolean' || showsAt(schema, schema, config, rest)
    case 'approval':
      return rest.length === 1 && rules === true
    case 'gates':
      return rest.length === 1 || (rest.length === 2 && ['weight', 'soak_duration'].includes(rest[1] ?? '')) || (rest.length === 3 && rest[1] === 'approval' && byHand.approval?.includes(rest[2] ?? '') === true)
    default:
      return rest.length === 0
  }
}

function messageAt(findings: Finding[], path: string[]): string | undefined {
  const found = findings.find((f) => f.path.join('/') === path.join('/'))
  return found && sentence(found.message)
}

function Deploy({ step, environments, earlier, called, schema, driver, config, findings, offers, onChange }: StepProps) {
  const asksId = useId()
  const { body } = step
  const approval = isRecord(body.approval) ? body.approval : null
  const mine = environmentOf(step)
  const below = (name: string) => findings.filter((f) => f.path[0] === name).map((f) => ({ ...f, path: f.path.slice(1) }))
  return (
    <>
      <Choice label="Environment" value={mine} options={environments} called={called} problem={messageAt(findings, ['environment'])} onChange={(v) => onChange({ ...body, environment: v })} />
      <Follows value={body.follows} earlier={earlier} called={called} problem={messageAt(findings, ['follows'])} onChange={(follows) => onChange({ ...body, follows })} />
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
      {typeof schema === 'boolean' ? (
        <AsJson name="config" value={config} findings={below('config')} onChange={(v) => onChange({ ...body, config: v })} />
      ) : (
        <SchemaForm context={{ root: schema, driver, findings: below('config').map((f) => ({ ...f, message: sentence(f.message) })), ...offers }} value={config} onChange={(v) => onChange({ ...body, config: v })} />
      )}
    </>
  )
}

/** One of some names; one that is not among them stays until another is chosen. */
function Choice({ label, value, options, called, problem, onChange }: { label: string; value: string; options: string[]; called: StepProps['called']; problem: string | undefined; onChange: (v: string) => void }) {
  const id = useId()
  return (
    <Field id={id} label={label} problem={problem}>
      <select id={id} aria-describedby={`${id}-notes`} aria-invalid={problem ? true : undefined} value={value} onChange={(e) => onChange(e.target.value)}>
        {(options.includes(value) ? options : [value, ...options]).map((o) => (
          <option key={o} value={o}>
            {called(o) || 'Choose…'}
          </option>
        ))}
      </select>
    </Field>
  )
}

/** Which environments guard the entrance of this one: the one before, which is the default, or some, or none. */
function Follows({ value, earlier, called, problem, onChange }: { value: unknown; earlier: string[]; called: StepProps['called']; problem: string | undefined; onChange: (v: string[] | undefined) => void }) {
  const named = Array.isArray(value) ? (value as unknown[]).map(String) : undefined
  if (earlier.length < 2 && named === undefined) return null
  const before = earlier.at(-1)
  const all = [...earlier, ...(named ?? []).filter((n) => !earlier.includes(n))]
  return (
    <fieldset className="group">
      <legend>What it follows</legend>
      <p className="help">The checks of these environments have to be green, and what was deployed there healthy, before a rollout enters this one.</p>
      <Problem message={problem} />
      <Tick label={before === undefined ? 'The environment before it' : `The environment before it: ${called(before)}`} ticked={named === undefined} onChange={(on) => onChange(on ? undefined : earlier.slice(-1))} />
      {named !== undefined && all.map((n) => <Tick key={n} label={called(n)} ticked={named.includes(n)} onChange={(on) => onChange(on ? all.filter((o) => o === n || named.includes(o)) : named.filter((o) => o !== n))} />)}
      {named?.length === 0 && <p className="help">None: no environment guards its entrance.</p>}
    </fieldset>
  )
}

function Tick({ label, ticked, onChange }: { label: string; ticked: boolean; onChange: (on: boolean) => void }) {
  const id = useId()
  return (
    <Field id={id} label={label} inline>
      <input id={id} aria-describedby={`${id}-notes`} type="checkbox" checked={ticked} onChange={(e) => onChange(e.target.checked)} />
    </Field>
  )
}

/** Who answers: the same for a step of its own, for an environment, and for a gate. */
function Rules({ value, path, findings, onChange }: { value: Json; path: string[]; findings: Finding[]; onChange: (value: Json) => void }) {
  const id = useId()
  const expiryId = useId()
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
      <Numeral label="Expires after seconds" value={value.expires_after} onChange={(v) => onChange({ ...value, expires_after: v, ...(v === undefined ? { on_expiry: undefined } : {}) })} problem={at('expires_after')} min={1} optional help="Never, if left empty." />
      {(value.expires_after !== undefined || value.on_expiry !== undefined) && (
        <Field id={expiryId} label="When it has expired" problem={at('on_expiry')}>
          <select id={expiryId} aria-describedby={`${expiryId}-notes`} value={String(value.on_expiry ?? '')} onChange={(e) => set('on_expiry', e.target.value || undefined)}>
            <option value="">Default: it is rejected</option>
            <option value="reject">it is rejected</option>
            <option value="approve">it is approved</option>
          </select>
        </Field>
      )}
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
          {isRecord(g.approval) && (
            <details className="optional" open={findings.some((f) => f.path[0] === String(i) && f.path[1] === 'approval') || undefined}>
              <summary>Who approves at gate {i + 1}</summary>
              <Rules value={g.approval} path={[String(i), 'approval']} findings={findings} onChange={(v) => set(i, { ...g, approval: v })} />
            </details>
          )}
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
