// A source, new or known: the form of its kind by reflection, and a look at what it would find, before anything is kept.
import { useId, useState } from 'react'
import { Link, useNavigate, useParams, useSearchParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { AddSource, ApplicationNames, OneSource, ReplaceSource, ServicesOf, SetSource, SourceKinds, TrySource, type SourceFields, type SourceKindsData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { useOffers } from '../form/offers'
import { prune, validate, withDefaults, type Json, type Schema } from '../form/schema'
import { SchemaForm } from '../form/SchemaForm'
import { sourceName } from '../logic/difference'
import { announce } from '../parts/announce'
import { Field, findingsUnder, FormError, sentence } from '../parts/form'
import { Icon } from '../parts/icon'
import { NotThere, Page, Waiting } from '../parts/page'
import { focusFirst } from './new-environment'
import { displayed } from '../logic/names'

export default function EditSource() {
  const { id } = useParams()
  const [search] = useSearchParams()
  return id ? <Known key={search.get('replace')} id={id} replaces={search.get('replace') !== null} /> : <New />
}

function Known({ id, replaces }: { id: string; replaces: boolean }) {
  const query = useAsk(OneSource, { id }, { once: true })
  if (query.data && !query.data.node) return <NotThere what="source" to="/sources" list="All sources" />
  const source = query.data?.node ?? undefined
  return (
    <Page
      title={source ? `${replaces ? 'Replace ' : ''}${sourceName(source)}` : 'Source'}
      above={<Link to="/sources">sources</Link>}
      lead={
        replaces ? (
          <p>Another repository or kind in its place. Version sets keep the last version of this one until the new one has a version.</p>
        ) : (
          <p>
            How it selects, and how it is polled. What it points at stays: its versions came from there. For another repository, <Link to="?replace">replace it</Link>.
          </p>
        )
      }
    >
      {query.data ? <Form kinds={query.data.artifactSourceKinds} source={source} replaces={replaces} /> : <Waiting query={query} what="source" />}
    </Page>
  )
}

function New() {
  const kinds = useAsk(SourceKinds, {}, { once: true })
  return (
    <Page title="New source" above={<Link to="/sources">sources</Link>} lead={<p>Another place that artifacts of a service come from.</p>}>
      {kinds.data ? <Form kinds={kinds.data.artifactSourceKinds} /> : <Waiting query={kinds} what="kinds of sources" />}
    </Page>
  )
}

function Form({ kinds, source, replaces }: { kinds: SourceKindsData['artifactSourceKinds']; source?: SourceFields | undefined; replaces?: boolean }) {
  const [search] = useSearchParams()
  const [ref, setRef] = useState(source?.sourceRef ?? kinds[0]?.ref ?? '')
  const [config, setConfig] = useState<Json>((source?.sourceConfig ?? {}) as Json)
  const [service, setService] = useState(source?.service.id ?? '')
  const [tried, setTried] = useState(false)
  const navigate = useNavigate()
  const kindId = useId()
  const schema = (kinds.find((k) => k.ref === ref)?.schema ?? true) as Schema
  const offers = useOffers(schema)
  const value = prune(schema, schema, withDefaults(schema, schema, config)) as Json
  const local = validate(schema, schema, value)
  const done = () => {
    announce(replaces ? 'Source replaced' : source ? 'Source saved' : 'Source created')
    void navigate('/sources')
  }
  const save = useChange(
    async () =>
      source && replaces
        ? accepted((await ask(ReplaceSource, { input: { artifactSourceId: source.id, sourceRef: ref, sourceConfig: value } })).replaceArtifactSource)
        : source
          ? accepted((await ask(SetSource, { input: { artifactSourceId: source.id, sourceConfig: value } })).setArtifactSourceConfig)
          : accepted((await ask(AddSource, { input: { serviceId: service, sourceRef: ref, sourceConfig: value } })).createArtifactSource),
    done,
  )
  const look = useChange(async () => accepted((await ask(TrySource, { input: { sourceRef: ref, sourceConfig: value } })).tryArtifactSource))
  const findings = [...(tried ? local : []), ...findingsUnder(save.error, 'sourceConfig'), ...findingsUnder(look.error, 'sourceConfig')]
  const shown = (path: string[]) => path[0] === 'sourceConfig' && findings.some((f) => f.path.join('/') === path.slice(1).join('/'))
  const whole = (form: HTMLElement | null) => {
    setTried(true)
    if (local.length > 0 && form) focusFirst(form, local[0]?.path)
    return local.length === 0
  }
  return (
    <form
      className="card form"
      onSubmit={(e) => {
        e.preventDefault()
        if (whole(e.currentTarget)) save.mutate(undefined)
      }}
    >
      {source && (
        <p>
          Of <strong>{source.service.application.name}</strong> › <strong>{displayed(source.service)}</strong>
          {!replaces && (
            <>
              , kind <span className="mono">{ref}</span>
            </>
          )}
        </p>
      )}
      {!source && <ServicePicker first={search.get('application')} onChange={setService} />}
      {(!source || replaces) && (
        <Field id={kindId} label="Kind">
          <select
            id={kindId}
            aria-describedby={`${kindId}-notes`}
            value={ref}
            onChange={(e) => {
              setRef(e.target.value)
              setConfig({})
              setTried(false)
            }}
          >
            {kinds.map((k) => (
              <option key={k.ref}>{k.ref}</option>
            ))}
          </select>
        </Field>
      )}
      <SchemaForm context={{ root: schema, driver: ref, findings, ...offers }} value={value} onChange={setConfig} />
      {look.data && !look.isPending && (
        <p role="status" className={look.data.problem ? 'banner bad' : 'banner good'}>
          <Icon name={look.data.problem ? 'failed' : 'completed'} />
          <span>{look.data.problem ? sentence(look.data.problem) : look.data.artifact ? `Found ${look.data.artifact}.` : 'It can be reached; nothing there counts by this selection.'}</span>
        </p>
      )}
      <FormError error={look.error ?? save.error} shown={shown} />
      <div className="actions">
        <button type="button" disabled={look.isPending} onClick={(e) => whole(e.currentTarget.form) && look.mutate(undefined)}>
          {look.isPending ? 'Testing…' : 'Test'}
        </button>
        <button type="submit" className="primary" disabled={save.isPending || (!source && service === '')}>
          {save.isPending ? 'Saving…' : replaces ? 'Replace' : source ? 'Save' : 'Add source'}
        </button>
      </div>
    </form>
  )
}

function ServicePicker({ first, onChange }: { first: string | null; onChange: (service: string) => void }) {
  const apps = useAsk(ApplicationNames, { first: 200, name: null }, { once: true })
  const [name, setName] = useState(first ?? '')
  const services = useAsk(ServicesOf, { name }, { once: true, enabled: name !== '' })
  const [service, setService] = useState('')
  const appId = useId()
  const serviceId = useId()
  const known = services.data?.application?.services ?? []
  return (
    <>
      <Field id={appId} label="Application">
        <select
          id={appId}
          aria-describedby={`${appId}-notes`}
          value={name}
          onChange={(e) => {
            setName(e.target.value)
            setService('')
            onChange('')
          }}
        >
          <option value="">Choose…</option>
          {apps.data?.applications.nodes.map((a) => (
            <option key={a.id}>{a.name}</option>
          ))}
        </select>
      </Field>
      <Field id={serviceId} label="Service">
        <select
          id={serviceId}
          aria-describedby={`${serviceId}-notes`}
          value={service}
          disabled={name === ''}
          onChange={(e) => {
            setService(e.target.value)
            onChange(e.target.value)
          }}
        >
          <option value="">Choose…</option>
          {known.map((s) => (
            <option key={s.id} value={s.id}>
              {displayed(s)}
            </option>
          ))}
        </select>
      </Field>
    </>
  )
}
