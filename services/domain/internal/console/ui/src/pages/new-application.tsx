// A new application with its services and the image of each, all or nothing.
import { useId, useState } from 'react'
import { Link, useNavigate } from 'react-router'
import { accepted, ask } from '../api/client'
import { CreateApplication } from '../api/generated'
import { useChange } from '../api/hooks'
import { announce } from '../parts/announce'
import { Field, findingsUnder, FormError } from '../parts/form'
import { Page } from '../parts/page'

interface ServiceDraft {
  name: string
  images: string[]
}

const blankService = (): ServiceDraft => ({ name: '', images: [''] })

export default function NewApplication() {
  const navigate = useNavigate()
  return (
    <Page title="New application" above={<Link to="/applications">applications</Link>} lead={<p>The services that ship together. Each is an image, wherever it is built.</p>}>
      <ApplicationForm done={(name) => void navigate(`/applications/${name}`)} />
    </Page>
  )
}

/** The form alone; done gets the name of what was made. */
export function ApplicationForm({ done }: { done: (name: string) => void }) {
  const [name, setName] = useState('')
  const [description, setDescription] = useState('')
  const [services, setServices] = useState<ServiceDraft[]>([blankService()])
  const change = useChange(
    async () =>
      accepted(
        (
          await ask(CreateApplication, {
            input: {
              name,
              description,
              services: services.map((s) => ({
                name: s.name,
                artifactSources: s.images.map((image) => ({ sourceRef: 'oci-image@1', sourceConfig: { image } })),
              })),
            },
          })
        ).createApplication,
      ),
    (payload) => {
      announce('Application created')
      done(payload.application?.name ?? name)
    },
  )
  const findings = findingsUnder(change.error)
  const problem = (...path: string[]) => findings.find((f) => f.path.join('/') === path.join('/'))?.message
  const setService = (i: number, next: ServiceDraft) => setServices(services.map((s, j) => (j === i ? next : s)))
  const known = new Set(['name', 'description', ...services.flatMap((s, i) => [`services/${i}/name`, ...s.images.map((_, j) => `services/${i}/artifactSources/${j}/sourceConfig/image`)])])
  return (
    <form
      className="card form"
      onSubmit={(e) => {
        e.preventDefault()
        change.mutate(undefined)
      }}
    >
      <Text label="Name" value={name} onChange={setName} problem={problem('name')} field="name" />
      <Text label="Description" value={description} onChange={setDescription} problem={problem('description')} field="description" optional />
      {services.map((s, i) => (
        <fieldset className="group" key={i}>
          <legend>Service {i + 1}</legend>
          <Text label="Name of the service" value={s.name} onChange={(v) => setService(i, { ...s, name: v })} problem={problem('services', String(i), 'name')} field={`service-${i}`} />
          {s.images.map((image, j) => (
            <Text
              key={j}
              label={s.images.length > 1 ? `Image ${j + 1}` : 'Image'}
              help="Without tag and digest: registry.example.com/shop/api"
              value={image}
              onChange={(v) => setService(i, { ...s, images: s.images.map((x, k) => (k === j ? v : x)) })}
              problem={problem('services', String(i), 'artifactSources', String(j), 'sourceConfig', 'image') ?? problem('services', String(i), 'artifactSources', String(j), 'sourceConfig')}
              field={`image-${i}-${j}`}
            />
          ))}
          <div className="line">
            <button type="button" className="quiet" onClick={() => setService(i, { ...s, images: [...s.images, ''] })}>
              Another image of this service
            </button>
            {s.images.length > 1 && (
              <button type="button" className="quiet" onClick={() => setService(i, { ...s, images: s.images.slice(0, -1) })}>
                Remove the last image
              </button>
            )}
            {services.length > 1 && (
              <button type="button" className="quiet" onClick={() => setServices(services.filter((_, j) => j !== i))}>
                Remove service {i + 1}
              </button>
            )}
          </div>
        </fieldset>
      ))}
      <p>
        <button type="button" onClick={() => setServices([...services, blankService()])}>
          Add a service
        </button>
      </p>
      <FormError error={change.error} shown={(path) => known.has(path.join('/'))} />
      <div className="actions">
        <button type="submit" className="primary" disabled={change.isPending}>
          {change.isPending ? 'Creating…' : 'Create application'}
        </button>
      </div>
    </form>
  )
}

interface TextProps {
  label: string
  value: string
  field: string
  onChange: (v: string) => void
  problem?: string | undefined
  help?: string
  optional?: boolean
}

export function Text({ label, value, field, onChange, problem, help, optional }: TextProps) {
  const id = useId()
  return (
    <Field id={id} label={label} help={help} problem={problem} optional={optional ?? false}>
      <input
        id={id}
        data-field={field}
        aria-describedby={`${id}-notes`}
        aria-invalid={problem ? true : undefined}
        type="text"
        spellCheck={false}
        autoComplete="off"
        value={value}
        onChange={(e) => onChange(e.target.value)}
      />
    </Field>
  )
}
