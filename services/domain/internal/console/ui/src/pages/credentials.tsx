// What programs, sources and notifications log in to servers with: a list without values, and the forms that make, rotate and revoke them.
import { useId, useState } from 'react'
import { accepted, ask } from '../api/client'
import { CreateCredential, Credentials as All, RevokeCredential, RotateCredential, Viewer, type CreateCredentialInput, type CredentialFields, type CredentialState } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { formOf, forms, inputOf, linesOf, type CredentialForm, type FormField } from '../logic/credentials'
import { announce } from '../parts/announce'
import { Confirm } from '../parts/confirm'
import { Dialog } from '../parts/dialog'
import { Field, findingsUnder, FormError } from '../parts/form'
import { Empty, Page, Waiting } from '../parts/page'
import { Reason } from '../parts/reason'
import { Chip } from '../parts/state'
import { Ago } from '../parts/time'

const states: Record<CredentialState, Parameters<typeof Chip>[0]> = {
  LIVE: { word: 'In force', icon: 'completed', tone: 'good' },
  EXPIRING: { word: 'Ends soon', icon: 'clock', tone: 'wait' },
  EXPIRED: { word: 'Has ended', icon: 'failed', tone: 'bad' },
  REVOKED: { word: 'Revoked', icon: 'cancelled', tone: 'quiet' },
}

export default function Credentials() {
  const query = useAsk(All, {})
  const viewer = useAsk(Viewer, {})
  const configures = viewer.data?.viewer.permissions.includes('CONFIGURE') ?? false
  const [creating, setCreating] = useState(false)
  const changed = () => query.refetch()
  return (
    <Page
      title="Credentials"
      lead={
        <p>
          What programs, sources and notifications log in to servers with, known to them by name. A value goes in and is never shown again, to nobody: if it is lost, make another one at its server, and rotate
          the credential.
        </p>
      }
      beside={
        configures && (
          <button type="button" className="primary" onClick={() => setCreating(true)}>
            Add a credential
          </button>
        )
      }
    >
      {!query.data ? <Waiting query={query} what="credentials" /> : <CredentialList all={query.data.credentials} configures={configures} changed={changed} />}
      {creating && <CreateForm changed={changed} onClose={() => setCreating(false)} />}
    </Page>
  )
}

interface ListProps {
  all: CredentialFields[]
  configures: boolean
  changed: () => Promise<unknown>
}

export function CredentialList({ all, configures, changed }: ListProps) {
  const [rotating, setRotating] = useState<CredentialFields | null>(null)
  const [revoking, setRevoking] = useState<CredentialFields | null>(null)
  if (all.length === 0) {
    return (
      <Empty icon="inbox" title="No credentials yet">
        <p>{configures ? 'Add one for each server that needs a login.' : 'Members who may configure the organization add them.'} Those that the operator has configured are not listed.</p>
      </Empty>
    )
  }
  return (
    <section className="card" aria-labelledby="credentials">
      <h2 id="credentials">Credentials of the organization</h2>
      <div className="scroll" tabIndex={0} role="region" aria-labelledby="credentials">
        <table className="list">
          <thead>
            <tr>
              <th scope="col">Credential</th>
              <th scope="col">Sent to</th>
              <th scope="col">Value</th>
              <th scope="col">State</th>
              <th scope="col">Changed</th>
              {configures && <th scope="col">Actions</th>}
            </tr>
          </thead>
          <tbody>
            {all.map((c) => (
              <tr key={c.name}>
                <th scope="row" className="wrap">
                  {c.name}
                  <div className="faint">{formOf(c)?.label ?? c.kind.toLowerCase()}</div>
                </th>
                <td className="mono wrap">
                  {c.urlPrefixes.map((url) => (
                    <div key={url}>{url}</div>
                  ))}
                </td>
                <td className="wrap">
                  {c.sealed ? 'sealed' : c.reference ? <code>{c.reference}</code> : 'deleted'}
                  <div className="faint">version {c.version}</div>
                </td>
                <td>
                  <Chip {...states[c.state]} />
                  {c.expiresAt && c.state !== 'REVOKED' && (
                    <div className="faint">
                      ends <Ago at={c.expiresAt} />
                    </div>
                  )}
                </td>
                <td>
                  <Ago at={c.changedAt} /> <span className="faint">by</span> <bdi>{c.author}</bdi>
                </td>
                {configures && (
                  <td className="buttons">
                    {c.state !== 'REVOKED' && (
                      <>
                        <button type="button" aria-label={`Rotate ${c.name}`} onClick={() => setRotating(c)}>
                          Rotate
                        </button>
                        <button type="button" aria-label={`Revoke ${c.name}`} onClick={() => setRevoking(c)}>
                          Revoke
                        </button>
                      </>
                    )}
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rotating && <RotateForm of={rotating} changed={changed} onClose={() => setRotating(null)} />}
      {revoking && (
        <Confirm
          title={`Revoke ${revoking.name}`}
          submit="Revoke"
          reasoned
          done={`${revoking.name} was revoked.`}
          onClose={() => setRevoking(null)}
          send={async (reason) => {
            accepted((await ask(RevokeCredential, { input: { name: revoking.name, reason } })).revokeCredential)
            await changed()
          }}
        >
          <p>Its value is deleted, and every use of its name fails from now on, also in rollouts that are under way. Revoke it at its server as well. The name may be given again.</p>
        </Confirm>
      )}
    </section>
  )
}

interface Given {
  by: 'value' | 'reference'
  text: string
  expires: string
}

const nothing: Given = { by: 'value', text: '', expires: '' }

/** The value of a form as the API takes it. */
const valueOf = (g: Given) => ({ [g.by]: g.text.trim(), expiresAt: g.expires ? new Date(`${g.expires}T23:59:59Z`).toISOString() : null })

interface ValueProps {
  form: CredentialForm | undefined
  given: Given
  onChange: (g: Given) => void
  error: unknown
}

/** The value, which is written only, or a reference to it. */
function ValueFields({ form, given, onChange, error }: ValueProps) {
  const id = useId()
  const problem = findingsUnder(error, given.by)[0]?.message
  const reference = given.by === 'reference'
  const control = {
    id: `${id}-value`, 'aria-describedby': `${id}-value-notes`, required: true, autoComplete: 'off', spellCheck: false, value: given.text,
  }
  return (
    <>
      <Field id={`${id}-by`} label="The value is">
        <select id={`${id}-by`} aria-describedby={`${id}-by-notes`} value={given.by} onChange={(e) => onChange({ ...given, by: e.target.value as Given['by'], text: '' })}>
          <option value="value">entered here, and sealed</option>
          <option value="reference">a reference that the operator allows</option>
        </select>
      </Field>
      <Field
        id={`${id}-value`}
        label={reference ? 'Reference' : (form?.value ?? 'Value')}
        help={reference ? 'Such as vault:secret/data/shop/api#token.' : 'It is sealed before it is stored, and never shown again.'}
        problem={problem}
      >
        {reference ? (
          <input {...control} onChange={(e) => onChange({ ...given, text: e.target.value })} />
        ) : form?.lines ? (
          <textarea {...control} rows={5} onChange={(e) => onChange({ ...given, text: e.target.value })} />
        ) : (
          <input {...control} type="password" autoComplete="new-password" onChange={(e) => onChange({ ...given, text: e.target.value })} />
        )}
      </Field>
      <Field id={`${id}-expires`} label="Ends on" optional help="It is reported as ending 14 days before, and used beyond it." problem={findingsUnder(error, 'expiresAt')[0]?.message}>
        <input id={`${id}-expires`} aria-describedby={`${id}-expires-notes`} type="date" value={given.expires} onChange={(e) => onChange({ ...given, expires: e.target.value })} />
      </Field>
    </>
  )
}

/** A field of a form of the table. */
function FormControl({ field, id, value, error, onChange }: { field: FormField; id: string; value: string; error: unknown; onChange: (v: string) => void }) {
  const control = { id, 'aria-describedby': `${id}-notes`, value }
  return (
    <Field id={id} label={field.label} help={field.help} optional={field.optional ?? false} problem={findingsUnder(error, ...field.path.split('/'))[0]?.message}>
      {field.options ? (
        <select {...control} onChange={(e) => onChange(e.target.value)}>
          {Object.entries(field.options).map(([k, text]) => (
            <option key={k} value={k}>
              {text}
            </option>
          ))}
        </select>
      ) : field.long ? (
        <textarea {...control} rows={3} required={!field.optional} onChange={(e) => onChange(e.target.value)} />
      ) : (
        <input {...control} required={!field.optional} autoComplete="off" onChange={(e) => onChange(e.target.value)} />
      )}
    </Field>
  )
}

function CreateForm({ changed, onClose }: { changed: () => Promise<unknown>; onClose: () => void }) {
  const [form, setForm] = useState(forms[0] as CredentialForm)
  const [name, setName] = useState('')
  const [urls, setURLs] = useState('')
  const [filled, setFilled] = useState<Record<string, string>>({})
  const [given, setGiven] = useState(nothing)
  const [reason, setReason] = useState('')
  const id = useId()
  const save = useChange(
    async () => {
      const input = { name, kind: form.kind, urlPrefixes: linesOf(urls), ...inputOf(form, filled), ...valueOf(given), reason } as CreateCredentialInput
      return accepted((await ask(CreateCredential, { input })).createCredential)
    },
    () => {
      announce(`${name} was added.`)
      void changed()
      onClose()
    },
  )
  const shown = (path: string[]) => ['name', 'urlPrefixes', given.by, 'expiresAt'].includes(path[0] ?? '') || form.fields.some((f) => f.path === path.join('/'))
  return (
    <Dialog title="Add a credential" submit="Add" wide busy={save.isPending} onSubmit={() => save.mutate(undefined)} onClose={onClose}>
      <Field id={`${id}-form`} label="Kind" help={form.help}>
        <select
          id={`${id}-form`}
          aria-describedby={`${id}-form-notes`}
          value={form.key}
          onChange={(e) => {
            setForm(forms.find((f) => f.key === e.target.value) ?? form)
            setFilled({})
            setGiven({ ...given, text: '' })
          }}
        >
          {forms.map((f) => (
            <option key={f.key} value={f.key}>
              {f.label}
            </option>
          ))}
        </select>
      </Field>
      <Field id={`${id}-name`} label="Name" help="Lower-case letters, digits, dots, hyphens and underscores." problem={findingsUnder(save.error, 'name')[0]?.message}>
        <input id={`${id}-name`} aria-describedby={`${id}-name-notes`} required autoComplete="off" value={name} onChange={(e) => setName(e.target.value)} />
      </Field>
      <Field
        id={`${id}-urls`}
        label="URLs that it may be sent to"
        help={`One per line: scheme, host and the beginning of a path, such as ${form.urls}. They never change: for others, revoke it and add it again.`}
        problem={findingsUnder(save.error, 'urlPrefixes')[0]?.message}
      >
        <textarea id={`${id}-urls`} aria-describedby={`${id}-urls-notes`} required rows={2} spellCheck={false} value={urls} onChange={(e) => setURLs(e.target.value)} />
      </Field>
      {form.fields.map((field) => (
        <FormControl
          key={`${form.key} ${field.path}`}
          field={field}
          id={`${id}-${field.path.replace('/', '-')}`}
          value={filled[field.path] ?? Object.keys(field.options ?? {})[0] ?? ''}
          error={save.error}
          onChange={(v) => setFilled({ ...filled, [field.path]: v })}
        />
      ))}
      <ValueFields form={form} given={given} onChange={setGiven} error={save.error} />
      <Reason value={reason} onChange={setReason} />
      <FormError error={save.error} shown={shown} />
    </Dialog>
  )
}

function RotateForm({ of, changed, onClose }: { of: CredentialFields; changed: () => Promise<unknown>; onClose: () => void }) {
  const [given, setGiven] = useState<Given>({ ...nothing, by: of.reference ? 'reference' : 'value' })
  const [reason, setReason] = useState('')
  const save = useChange(
    async () => accepted((await ask(RotateCredential, { input: { name: of.name, ...valueOf(given), reason } })).rotateCredential),
    () => {
      announce(`${of.name} was rotated.`)
      void changed()
      onClose()
    },
  )
  return (
    <Dialog title={`Rotate ${of.name}`} submit="Rotate" busy={save.isPending} onSubmit={() => save.mutate(undefined)} onClose={onClose}>
      <p>Another value in place of the present one, which the next use gets. Where it may be sent stays as it is.</p>
      <ValueFields form={formOf(of)} given={given} onChange={setGiven} error={save.error} />
      <Reason value={reason} onChange={setReason} />
      <FormError error={save.error} shown={(path) => [given.by, 'expiresAt'].includes(path[0] ?? '')} />
    </Dialog>
  )
}
