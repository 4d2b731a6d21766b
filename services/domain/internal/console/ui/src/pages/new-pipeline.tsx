// A new version of an application's pipeline, on a canvas, as a list, or as the document that both make. The server says what is
// wrong while it is written, at the step that it is about; the driver's own form is reflected.
import { useEffect, useId, useMemo, useState, type FocusEvent } from 'react'
import { Link, useNavigate, useParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { ApplicationPage, CheckPipeline, CreatePipeline, Drivers, Environments, PipelineSchema, type ApplicationPageData, type DriversData, type EnvironmentFields } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { configOf as sent, draftOf, environmentOf, environmentsBefore, inserted, isPipeline, located, moved, newDeploy, newStep, shownAs, titleOf, writtenIn, type Draft, type Step, type StepType } from '../form/pipeline-steps'
import { useOffers } from '../form/offers'
import { partOf, type Json, type Schema } from '../form/schema'
import { showsAt } from '../form/SchemaForm'
import { byTier } from '../logic/where'
import { announce } from '../parts/announce'
import { Field, FormError, isMissing, Problem, sentence } from '../parts/form'
import { Icon } from '../parts/icon'
import { Empty, Page, Waiting } from '../parts/page'
import { PipelineCanvas } from '../parts/pipeline-canvas'
import { Rest, StepForm } from '../parts/pipeline-step'
import { useUnsaved } from '../parts/unsaved'
import { displayedOf } from '../logic/names'

export default function NewPipeline() {
  const { name = '' } = useParams()
  const navigate = useNavigate()
  return (
    <Page title={`Pipeline of ${name}`} above={<Link to={`/applications/${name}`}>{name}</Link>} lead={<p>Environments in the order in which a version set goes through them. At each gate all services wait for each other.</p>}>
      <PipelineForm name={name} done={() => void navigate(`/applications/${name}`)} />
    </Page>
  )
}

/** The editor alone; done is called when there is a new version. */
export function PipelineForm({ name, done }: { name: string; done: () => void }) {
  const app = useAsk(ApplicationPage, { name }, { once: true })
  const environments = useAsk(Environments, { first: 200 })
  const drivers = useAsk(Drivers, {}, { once: true })
  const schema = useAsk(PipelineSchema, {}, { once: true })
  if (!app.data || !environments.data || !drivers.data || !schema.data) {
    return <Waiting query={[app, environments, drivers, schema].find((q) => q.error) ?? app} what="form" />
  }
  if (!app.data.application) {
    return (
      <Empty icon="cancelled" title="There is no such application">
        <p>
          <Link to="/applications">All applications</Link>
        </p>
      </Empty>
    )
  }
  const known = [...environments.data.environments.nodes].sort(byTier)
  return <Form key={app.data.application.id} app={app.data.application} environments={known} drivers={drivers.data.drivers} pipeline={schema.data.flowDefinitionSchema as Schema} done={done} />
}

interface FormProps {
  app: NonNullable<ApplicationPageData['application']>
  environments: EnvironmentFields[]
  drivers: DriversData['drivers']
  pipeline: Schema
  done: () => void
}

const extras: Array<Exclude<StepType, 'deploy'>> = ['approval', 'pause', 'analysis', 'job']

function Form({ app, environments, drivers, pipeline, done }: FormProps) {
  const names = environments.map((e) => e.name)
  const called = (environment: string) => displayedOf(environments, environment)
  const titled = (step: Step) => titleOf(step, called)
  const services = app.services.map((s) => s.name)
  const [draft, setDraft] = useState<Draft>(() => {
    const begun = draftOf(app.flowDefinition?.definition)
    return app.flowDefinition || names.length !== 1 ? begun : { ...begun, steps: names.map((e) => newDeploy(e, services)) }
  })
  const { steps, view, text } = draft
  const setSteps = (next: Step[]) => setDraft({ ...draft, steps: next })
  const [chosen, setChosen] = useState(steps[0]?.key ?? '')
  const offers = useOffers(useMemo(() => drivers.map((d) => d.applicationEnvironmentSchema), [drivers]))
  const schemaOf = (step: Step): { schema: Schema; driver: string } => {
    const driver = environments.find((e) => e.name === environmentOf(step))?.driverBindings[0]?.driverRef ?? ''
    return { schema: (drivers.find((d) => d.ref === driver)?.applicationEnvironmentSchema ?? true) as Schema, driver }
  }
  const configOf = (step: Step) => sent(schemaOf(step).schema, step) as Json
  const parsed = writtenIn(draft, configOf)
  const checked = useChecked(parsed)
  const [saved] = useState(() => JSON.stringify(parsed))
  const isSaved = useUnsaved(parsed === undefined || JSON.stringify(parsed) !== saved)
  // A field that is still to be filled in is no error before it was visited, or before saving.
  const [attempted, setAttempted] = useState(false)
  const [visited, setVisited] = useState<ReadonlySet<string>>(new Set())
  const leave = (e: FocusEvent<HTMLElement>) => {
    const field = e.target.dataset.field
    // A moment later: what is shown may move what is being clicked.
    if (field !== undefined) setTimeout(() => setVisited((before) => (before.has(field) ? before : new Set([...before, field]))), afterClick)
  }
  const [due, todo] = split(checked.found, (l) => attempted || text !== null || !isMissing(l.finding) || (!checked.pending && [0, 1].some((from) => visited.has(l.finding.path.slice(from).join('/')))))
  const change = useChange(
    async () => accepted((await ask(CreatePipeline, { input: { application: app.name, definition: parsed } })).createFlowDefinition),
    () => {
      isSaved()
      announce(`Pipeline of ${app.name} saved.`)
      done()
    },
  )
  const of = (index: number) => due.filter((l) => l.step === index).map((l) => l.finding)
  const edit = (index: number, body: Json) => setSteps(steps.map((s, i) => (i === index ? { ...s, body } : s)))
  const move = (from: number, to: number) => {
    const next = moved(steps, from, to)
    setSteps(next)
    const at = next.findIndex((s) => s.key === steps[from]?.key)
    announce(`${titled(next[at] as Step)} is step ${at + 1} of ${next.length} now.`)
  }
  const remove = (index: number) => {
    const gone = steps[index]
    const next = steps.filter((_, i) => i !== index)
    setSteps(next)
    if (gone?.key === chosen) setChosen(next[Math.max(0, index - 1)]?.key ?? '')
    if (gone) announce(`${titled(gone)} removed`)
  }
  const add = (what: string, at: number) => {
    const step = names.includes(what) ? newDeploy(what, services) : newStep(what as Exclude<StepType, 'deploy'>, steps)
    setSteps(inserted(steps, at, step))
    setChosen(step.key)
    announce(`${titled(step)} added`)
  }
  const palette = { called, environments: names.filter((n) => !steps.some((s) => environmentOf(s) === n)), types: supported(drivers, environments, steps) }
  const form = (index: number) => {
    const step = steps[index] as Step
    const earlier = environmentsBefore(steps, index)
    const targets = steps.some((s) => environmentOf(s) !== '') ? earlier : names
    return <StepForm key={step.key} step={step} earlier={earlier} called={called} targets={targets} pipeline={pipeline} environments={names.filter((n) => n === environmentOf(step) || palette.environments.includes(n))} {...schemaOf(step)} config={configOf(step)} findings={of(index)} offers={offers} onChange={(b) => edit(index, b)} />
  }
  const at = steps.findIndex((s) => s.key === chosen)
  const whole = partOf(pipeline, pipeline, draft.document, ['steps'])
  const settings = (
    <section className="card form" aria-labelledby="whole">
      <h2 id="whole">The whole pipeline</h2>
      <Rest schema={whole} body={draft.document} findings={of(-1)} folded="Checks, deadlines, inputs and weights" onChange={(document) => setDraft({ ...draft, document })} />
      {of(-1).filter((f) => !(f.path[0]! in (whole.properties ?? {})) || !showsAt(whole, whole, draft.document, f.path)).map((f) => (
        <Problem key={f.path.join('/') + f.message} message={sentence(f.message)} />
      ))}
    </section>
  )
  return (
    <form
      className="pipeline-editor stack"
      onSubmit={(e) => {
        e.preventDefault()
        setAttempted(true)
        if (parsed !== undefined && (checked.pending || checked.found.length === 0)) change.mutate(undefined)
      }}
      onBlur={leave}
    >
      <div className="line">
        <div className="tabs" role="group" aria-label="How to edit it">
          {(['canvas', 'list', 'json'] as const).map((v) => (
            <button
              key={v}
              type="button"
              aria-pressed={view === v}
              disabled={v !== 'json' && text !== null && !isPipeline(parsed)}
              onClick={() => setDraft(shownAs(draft, v, configOf))}
            >
              {v === 'canvas' ? 'Canvas' : v === 'list' ? 'List' : 'JSON'}
            </button>
          ))}
        </div>
        <p className={`verdict ${due.length > 0 ? 'bad' : todo.length > 0 ? '' : 'good'}`} role="status">
          {parsed === undefined ? 'Invalid JSON'
          : checked.pending ? 'Checking…'
          : due.length > 0 ? <><Icon name="failed" /> {due.length === 1 ? '1 error' : `${due.length} errors`}</>
          : todo.length > 0 ? `${todo.length === 1 ? '1 field' : `${todo.length} fields`} to fill in`
          : <><Icon name="completed" /> Valid</>}
        </p>
      </div>
      {text !== null ? (
        <div className="card form">
          <Document text={text} onChange={(typed) => setDraft({ ...draft, text: typed })} />
          {due.map((l) => (
            <Problem key={`${l.step}${l.finding.path.join('/')}${l.finding.message}`} message={`${l.step < 0 ? '' : `Step ${l.step + 1}: `}${l.finding.path.join(' › ')}: ${l.finding.message}`} />
          ))}
        </div>
      ) : view === 'canvas' ? (
        <>
          <PipelineCanvas steps={steps} chosen={chosen} wrong={steps.map((_, i) => of(i).length)} palette={palette} onChoose={setChosen} onMove={move} onRemove={remove} onAdd={add} />
          {at >= 0 && (
            <section className="card form" aria-labelledby="chosen">
              <h2 id="chosen">
                Step {at + 1}: {titled(steps[at] as Step)}
              </h2>
              {form(at)}
            </section>
          )}
          {settings}
        </>
      ) : (
        <>
        <ol className="step-list" aria-label="Steps, in order">
          {steps.map((s, i) => (
            <li key={s.key} className="card form">
              <header className="line">
                <h2>
                  Step {i + 1}: {titled(s)}
                </h2>
                <span className="buttons push">
                  <button type="button" disabled={i === 0} onClick={() => move(i, i - 1)} aria-label={`Move ${titled(s)} up`}>
                    Up
                  </button>
                  <button type="button" disabled={i === steps.length - 1} onClick={() => move(i, i + 1)} aria-label={`Move ${titled(s)} down`}>
                    Down
                  </button>
                  <button type="button" onClick={() => remove(i)} aria-label={`Remove ${titled(s)}`}>
                    Remove
                  </button>
                </span>
              </header>
              {form(i)}
            </li>
          ))}
          <li className="buttons">
            {[...palette.environments, ...palette.types].map((what) => (
              <button type="button" key={what} onClick={() => add(what, steps.length)}>
                Add {called(what)}
              </button>
            ))}
          </li>
        </ol>
        {settings}
        </>
      )}
      {environments.length === 0 && <p><Link to="/environments/new">Create an environment first</Link></p>}
      <FormError error={change.error} shown={(path) => text === null && path[0] === 'definition' && checked.found.length > 0} />
      <div className="actions">
        <button type="submit" className="primary" disabled={change.isPending || parsed === undefined}>
          {change.isPending ? 'Saving…' : app.flowDefinition ? `Save version ${app.flowDefinition.version + 1}` : 'Create pipeline'}
        </button>
      </div>
    </form>
  )
}

/** The items for which a condition holds, and the others. */
function split<T>(items: T[], holds: (item: T) => boolean): [T[], T[]] {
  return [items.filter(holds), items.filter((i) => !holds(i))]
}

/** The kinds of steps beside deploying that every driver of the pipeline's environments can carry out; all, before there is one. */
function supported(drivers: DriversData['drivers'], environments: EnvironmentFields[], steps: Step[]): Array<Exclude<StepType, 'deploy'>> {
  const used = environments.filter((e) => steps.some((s) => environmentOf(s) === e.name)).map((e) => e.driverBindings[0]?.driverRef)
  return extras.filter((t) => drivers.every((d) => !used.includes(d.ref) || d.supportedPipelineSteps.includes(t)))
}

const settleAfter = 400

/** How long after a field was left a click that left it is over. */
const afterClick = 200

/** What the server finds wrong with a document, a moment after it was last changed. */
function useChecked(document: unknown) {
  const written = JSON.stringify(document)
  const [settled, setSettled] = useState(written)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(written), settleAfter)
    return () => clearTimeout(timer)
  }, [written])
  const query = useAsk(CheckPipeline, { definition: settled === undefined ? null : JSON.parse(settled) }, { once: true, enabled: settled !== undefined })
  return { pending: settled !== written || query.isFetching, found: located(query.data?.validateFlowDefinition ?? []) }
}

function Document({ text, onChange }: { text: string; onChange: (v: string) => void }) {
  const id = useId()
  return (
    <Field id={id} label="The document">
      <textarea id={id} aria-describedby={`${id}-notes`} rows={24} spellCheck={false} value={text} onChange={(e) => onChange(e.target.value)} />
    </Field>
  )
}
