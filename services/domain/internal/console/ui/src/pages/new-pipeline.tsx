// A new version of an application's pipeline: environments in order, their gates, approvals before them, and the driver's own
// form for each. The document that it makes is shown, and can be edited instead.
import { useId, useState } from 'react'
import { Link, useNavigate, useParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { ApplicationPage, CreatePipeline, Drivers, Environments, type ApplicationPageData, type DriversData, type EnvironmentFields } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { draftOf, type Draft, draftProblem, documentOf, newStage, type Stage } from '../form/pipeline-draft'
import { prune, type Finding, type Json, type Schema, withDefaults } from '../form/schema'
import { SchemaForm } from '../form/SchemaForm'
import { byTier } from '../logic/where'
import { announce } from '../parts/announce'
import { Field, findingsUnder, FormError, Problem } from '../parts/form'
import { NotThere, Page, Waiting } from '../parts/page'
import { Text } from './new-application'

export default function NewPipeline() {
  const { name = '' } = useParams()
  const app = useAsk(ApplicationPage, { name }, { once: true })
  const environments = useAsk(Environments, { first: 200 })
  const drivers = useAsk(Drivers, {}, { once: true })
  if (!app.data || !environments.data || !drivers.data) {
    return (
      <Page title="Pipeline">
        <Waiting query={[app, environments, drivers].find((q) => q.error) ?? app} what="form" />
      </Page>
    )
  }
  if (!app.data.application) return <NotThere what="application" to="/applications" list="All applications" />
  const known = [...environments.data.environments.nodes].sort(byTier)
  return <Form key={app.data.application.id} app={app.data.application} environments={known} drivers={drivers.data.drivers} />
}

interface FormProps {
  app: NonNullable<ApplicationPageData['application']>
  environments: EnvironmentFields[]
  drivers: DriversData['drivers']
}

function Form({ app, environments, drivers }: FormProps) {
  const [draft, setDraft] = useState<Draft>(() => draftOf(app.flowDefinition?.definition, environments.map((e) => e.name), app.services.map((s) => s.name)))
  const [text, setText] = useState<string | null>(draft.readable ? null : JSON.stringify(app.flowDefinition?.definition, null, 2))
  const navigate = useNavigate()
  const schemaOf = (stage: Stage): { schema: Schema; driver: string } => {
    const driver = environments.find((e) => e.name === stage.environment)?.driverBindings[0]?.driverRef ?? ''
    return { schema: (drivers.find((d) => d.ref === driver)?.applicationEnvironmentSchema ?? true) as Schema, driver }
  }
  const configOf = (stage: Stage): Json => {
    const { schema } = schemaOf(stage)
    return prune(schema, schema, withDefaults(schema, schema, stage.config)) as Json
  }
  const built = documentOf(draft, configOf)
  const parsed = text === null ? built : parse(text)
  const change = useChange(
    async () => accepted((await ask(CreatePipeline, { input: { application: app.name, definition: parsed } })).createFlowDefinition),
    () => {
      announce(`The pipeline of ${app.name} has a new version.`)
      void navigate(`/applications/${app.name}`)
    },
  )
  const findings = text === null ? findingsUnder(change.error, 'definition') : []
  const set = (i: number, stage: Stage) => setDraft({ ...draft, stages: draft.stages.map((s, j) => (j === i ? stage : s)) })
  const unused = environments.filter((e) => !draft.stages.some((s) => s.environment === e.name))
  const wrong = text === null ? draftProblem(draft) : parsed === undefined ? 'This is not JSON yet.' : null
  return (
    <Page title={`Pipeline of ${app.name}`} name={`Pipeline of ${app.name}`} above={<Link to={`/applications/${app.name}`}>{app.name}</Link>} lead={<p>Environments in the order in which a version set goes through them. At each gate all services wait for each other.</p>}>
      <form
        className="card form"
        onSubmit={(e) => {
          e.preventDefault()
          if (!wrong) change.mutate(undefined)
        }}
      >
        {text === null ? (
          <>
            {draft.stages.map((stage, i) => (
              <StageForm
                key={stage.environment}
                stage={stage}
                first={i === 0}
                {...schemaOf(stage)}
                value={configOf(stage)}
                findings={findings.filter((f) => f.path[0] === 'steps' && f.path[1] === String(stepIndex(draft, i))).map((f) => ({ ...f, path: f.path.slice(2) }))}
                onChange={(s) => set(i, s)}
                onUp={() => setDraft({ ...draft, stages: swap(draft.stages, i - 1) })}
                onRemove={() => setDraft({ ...draft, stages: draft.stages.filter((_, j) => j !== i) })}
              />
            ))}
            <div className="line">
              {unused.map((e) => (
                <button type="button" key={e.id} onClick={() => setDraft({ ...draft, stages: [...draft.stages, newStage(e.name, app.services.map((s) => s.name))] })}>
                  Add {e.name}
                </button>
              ))}
              {environments.length === 0 && <Link to="/environments/new">Create an environment first</Link>}
            </div>
          </>
        ) : (
          <Document text={text} onChange={setText} />
        )}
        <Problem message={wrong ?? undefined} />
        <FormError error={change.error} shown={(path) => text === null && path[2] !== undefined && path[3] === 'config'} />
        <div className="actions">
          <button type="button" className="quiet" onClick={() => setText(text === null ? JSON.stringify(built, null, 2) : null)}>
            {text === null ? 'Edit as JSON' : 'Back to the form'}
          </button>
          <button type="submit" className="primary" disabled={change.isPending || wrong !== null}>
            {change.isPending ? 'Creating…' : 'Create pipeline'}
          </button>
        </div>
      </form>
    </Page>
  )
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function swap<T>(all: T[], i: number): T[] {
  const next = [...all]
  ;[next[i], next[i + 1]] = [next[i + 1] as T, next[i] as T]
  return next
}

/** The place of a stage's deploy step among the steps of the document. */
function stepIndex(draft: Draft, stage: number): number {
  return draft.stages.slice(0, stage + 1).reduce((sum, s) => sum + (s.approval === null ? 1 : 2), -1)
}

function Document({ text, onChange }: { text: string; onChange: (v: string) => void }) {
  const id = useId()
  return (
    <Field id={id} label="The document">
      <textarea id={id} aria-describedby={`${id}-notes`} rows={24} spellCheck={false} value={text} onChange={(e) => onChange(e.target.value)} />
    </Field>
  )
}

interface StageProps {
  stage: Stage
  first: boolean
  schema: Schema
  driver: string
  value: Json
  findings: Finding[]
  onChange: (stage: Stage) => void
  onUp: () => void
  onRemove: () => void
}

function StageForm({ stage, first, schema, driver, value, findings, onChange, onUp, onRemove }: StageProps) {
  const id = useId()
  const config = findings.filter((f) => f.path[0] === 'config').map((f) => ({ ...f, path: f.path.slice(1) }))
  return (
    <fieldset className="group stage">
      <legend>{stage.environment}</legend>
      <Field id={id} label="An approval before it" inline>
        <input id={id} aria-describedby={`${id}-notes`} type="checkbox" checked={stage.approval !== null} onChange={(e) => onChange({ ...stage, approval: e.target.checked ? '' : null })} />
      </Field>
      {stage.approval !== null && (
        <Text label="What the one who approves should know" field="approval" value={stage.approval} onChange={(v) => onChange({ ...stage, approval: v })} optional />
      )}
      <Text label="Gates" field="gates" value={stage.gates} help="Shares of traffic in percent, rising, with commas: 25, 50, 100. None: all at once." onChange={(v) => onChange({ ...stage, gates: v })} problem={findings.find((f) => f.path[0] === 'gates')?.message} optional />
      <SchemaForm context={{ root: schema, driver, findings: config, agents: [] }} value={value} onChange={(v) => onChange({ ...stage, config: v })} />
      <div className="line">
        {!first && (
          <button type="button" className="quiet" onClick={onUp}>
            Move {stage.environment} up
          </button>
        )}
        <button type="button" className="quiet" onClick={onRemove}>
          Remove {stage.environment}
        </button>
      </div>
    </fieldset>
  )
}
