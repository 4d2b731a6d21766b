// What is published at forges: which applications have it, what was sent last, what has failed, and how much each server still accepts.
import { useId, useState } from 'react'
import { Link, useSearchParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { ForgePublishing, PutForgeMirror, RetryForgeStatuses, Viewer, type ForgePublishingData, type ForgeStatusState } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { announce } from '../parts/announce'
import { phases } from '../parts/checks'
import { Confirm } from '../parts/confirm'
import { Dialog } from '../parts/dialog'
import { Field, findingsUnder, FormError, sentence } from '../parts/form'
import { Empty, Page, Waiting } from '../parts/page'
import { Reason } from '../parts/reason'
import { Chip } from '../parts/state'
import { Ago } from '../parts/time'

type Mirror = ForgePublishingData['forgeMirrors'][number]
type Host = ForgePublishingData['forgeHosts'][number]
type Status = ForgePublishingData['forgeStatuses'][number]
type Pull = ForgePublishingData['forgePulls'][number]

/** How many statuses are on a page. */
const most = 50

const states: Record<ForgeStatusState, string> = { PENDING: 'waits', SENDING: 'is being sent', SENT: 'sent', FAILED: 'failed' }

export default function Publishing() {
  const [search, setSearch] = useSearchParams()
  const before = Number(search.get('before')) || null
  const state = (Object.keys(states) as ForgeStatusState[]).find((s) => s === search.get('state')) ?? null
  const query = useAsk(ForgePublishing, { state, kind: null, first: most, before })
  const viewer = useAsk(Viewer, {})
  const configures = viewer.data?.viewer.permissions.includes('CONFIGURE') ?? false
  const [saving, setSaving] = useState<Mirror | 'new' | null>(null)
  const changed = () => query.refetch()
  return (
    <Page
      title="Publishing"
      lead={
        <p>
          Checks and deployments as GitHub, GitLab, Gitea and Forgejo show them. They are copies: nothing is decided by them. What forges report is under{' '}
          <Link to="/forges">Forges</Link>, feeds and badges are under <Link to="/notifications">Notifications</Link>.
        </p>
      }
      beside={
        configures && (
          <button type="button" className="primary" onClick={() => setSaving('new')}>
            Publish an application
          </button>
        )
      }
    >
      {!query.data ? (
        <Waiting query={query} what="publishing" />
      ) : (
        <>
          <Mirrors all={query.data.forgeMirrors} configures={configures} onSave={setSaving} />
          <Hosts all={query.data.forgeHosts} />
          <Statuses
            all={query.data.forgeStatuses}
            before={before}
            state={state}
            configures={configures}
            changed={changed}
            onState={(s) => setSearch(s ? { state: s } : {})}
          />
          <Pulls all={query.data.forgePulls} />
        </>
      )}
      {saving && <MirrorForm of={saving === 'new' ? null : saving} changed={changed} onClose={() => setSaving(null)} />}
    </Page>
  )
}

function Mirrors({ all, configures, onSave }: { all: Mirror[]; configures: boolean; onSave: (m: Mirror) => void }) {
  if (all.length === 0) {
    return (
      <Empty icon="inbox" title="Nothing is published">
        <p>Each application switches it on for itself.</p>
      </Empty>
    )
  }
  return (
    <section className="card" aria-labelledby="mirrors">
      <h2 id="mirrors">Applications</h2>
      <div className="scroll" tabIndex={0} role="region" aria-labelledby="mirrors">
        <table className="list">
          <thead>
            <tr>
              <th scope="col">Application</th>
              <th scope="col">Published</th>
              <th scope="col">Credential</th>
              <th scope="col">Changed</th>
              {configures && <th scope="col">Actions</th>}
            </tr>
          </thead>
          <tbody>
            {all.map((m) => (
              <tr key={m.application}>
                <th scope="row">
                  <Link to={`/applications/${m.application}`}>{m.application}</Link>
                  <div className="faint">{m.enabled ? 'on' : 'off'}</div>
                </th>
                <td className="wrap">
                  {m.enabled ? (
                    <>
                      statuses{m.deployments && ' and deployments'} of {m.environments.length > 0 ? m.environments.join(', ') : 'all environments'}
                    </>
                  ) : (
                    'no statuses'
                  )}
                  <div className="faint">{m.plans ? 'in the plans of pull requests' : 'not in the plans of pull requests'}</div>
                </td>
                <td>{m.credential || 'by URL'}</td>
                <td>
                  <Ago at={m.changedAt} /> <span className="faint">by</span> <bdi>{m.author}</bdi>
                </td>
                {configures && (
                  <td className="buttons">
                    <button type="button" aria-label={`Change the publishing of ${m.application}`} onClick={() => onSave(m)}>
                      Change
                    </button>
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  )
}

function Hosts({ all }: { all: Host[] }) {
  if (all.length === 0) {
    return null
  }
  return (
    <section className="card" aria-labelledby="hosts">
      <h2 id="hosts">Servers</h2>
      <div className="scroll" tabIndex={0} role="region" aria-labelledby="hosts">
        <table className="list">
          <thead>
            <tr>
              <th scope="col">Server</th>
              <th scope="col">Waiting</th>
              <th scope="col">Requests left</th>
              <th scope="col">State</th>
            </tr>
          </thead>
          <tbody>
            {all.map((h) => (
              <tr key={h.host}>
                <th scope="row" className="wrap">
                  {h.host}
                </th>
                <td>{h.waiting}</td>
                <td>
                  {h.quotaRemaining === null ? (
                    'it does not say'
                  ) : (
                    <>
                      {h.quotaRemaining} of {h.quotaLimit}
                      {h.quotaResetsAt && (
                        <div className="faint">
                          all again <Ago at={h.quotaResetsAt} />
                        </div>
                      )}
                    </>
                  )}
                </td>
                <td className="wrap">
                  {h.pausedUntil ? (
                    <>
                      nothing is sent until <Ago at={h.pausedUntil} />
                    </>
                  ) : (
                    'accepts what is sent'
                  )}
                  {h.problem && <p className="reason">{sentence(h.problem)}</p>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  )
}

interface StatusesProps {
  all: Status[]
  before: number | null
  state: ForgeStatusState | null
  configures: boolean
  changed: () => Promise<unknown>
  onState: (state: ForgeStatusState | null) => void
}

function Statuses({ all, before, state, configures, changed, onState }: StatusesProps) {
  const [retrying, setRetrying] = useState<Status | 'all' | null>(null)
  const id = useId()
  const last = all.at(-1)
  const suffix = state ? `&state=${state}` : ''
  return (
    <section className="card" aria-labelledby="statuses">
      <h2 id="statuses">Statuses and deployments</h2>
      <p className="line">
        <label htmlFor={`${id}-state`}>Show</label>
        <select id={`${id}-state`} value={state ?? ''} onChange={(e) => onState((e.target.value || null) as ForgeStatusState | null)}>
          <option value="">all</option>
          {Object.entries(states).map(([k, text]) => (
            <option key={k} value={k}>
              {text}
            </option>
          ))}
        </select>
        {configures && state === 'FAILED' && all.length > 0 && (
          <button type="button" onClick={() => setRetrying('all')}>
            Send all again
          </button>
        )}
      </p>
      {all.length === 0 ? (
        <p className="faint">{before ? 'No older ones.' : 'Nothing of the kind.'}</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-labelledby="statuses">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Name</th>
                <th scope="col">Commit</th>
                <th scope="col">Says</th>
                <th scope="col">Sent</th>
                {configures && <th scope="col">Actions</th>}
              </tr>
            </thead>
            <tbody>
              {all.map((s) => (
                <tr key={s.number}>
                  <th scope="row" className="wrap">
                    {s.name}
                    <div className="faint">{s.kind === 'DEPLOYMENT' ? 'deployment' : 'status'}</div>
                  </th>
                  <td>
                    <code>{s.commit.slice(0, 12)}</code>
                    <div className="faint wrap">{s.repository}</div>
                  </td>
                  <td>
                    {s.stage ? s.stage.toLowerCase().replace('_', ' ') : <Chip {...phases[s.phase]} />}
                    {s.description && <div className="faint wrap">{s.description}</div>}
                  </td>
                  <td className="wrap">
                    {states[s.state]} {s.sentAt && <Ago at={s.sentAt} />}
                    {s.error && <p className="reason">{sentence(s.error)}</p>}
                  </td>
                  {configures && (
                    <td className="buttons">
                      {s.state === 'FAILED' && (
                        <button type="button" aria-label={`Send again: ${s.name}`} onClick={() => setRetrying(s)}>
                          Send again
                        </button>
                      )}
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <nav className="line" aria-label="Pages of statuses">
        {before && <Link to={`/forges/publishing?${suffix.slice(1)}`}>Newest</Link>}
        {last && all.length === most && <Link to={`/forges/publishing?before=${last.number}${suffix}`}>Older</Link>}
      </nav>
      {retrying && (
        <Confirm
          title={retrying === 'all' ? 'Send all again' : `Send ${retrying.name} again`}
          submit="Send"
          reasoned
          done="It is sent again."
          onClose={() => setRetrying(null)}
          send={async (reason) => {
            accepted((await ask(RetryForgeStatuses, { input: { number: retrying === 'all' ? null : retrying.number, reason } })).retryForgeStatuses)
            await changed()
          }}
        >
          <p>{retrying === 'all' ? 'The oldest 500 that were given up are sent again.' : 'It says what it has to say now.'}</p>
        </Confirm>
      )}
    </section>
  )
}

function Pulls({ all }: { all: Pull[] }) {
  if (all.length === 0) {
    return null
  }
  return (
    <section className="card" aria-labelledby="pulls">
      <h2 id="pulls">Comments on pull requests</h2>
      <div className="scroll" tabIndex={0} role="region" aria-labelledby="pulls">
        <table className="list">
          <thead>
            <tr>
              <th scope="col">Pull request</th>
              <th scope="col">Outcome</th>
              <th scope="col">State</th>
            </tr>
          </thead>
          <tbody>
            {all.map((p) => (
              <tr key={p.number}>
                <th scope="row" className="wrap">
                  {p.repository} {p.link ? <a href={p.link} rel="noreferrer" target="_blank">#{p.pullRequest}</a> : `#${p.pullRequest}`}
                </th>
                <td className="wrap">{p.outcome}</td>
                <td className="wrap">
                  {states[p.state]} {p.endedAt && <Ago at={p.endedAt} />}
                  {p.error && <p className="reason">{sentence(p.error)}</p>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  )
}

interface MirrorFormProps {
  of: Mirror | null
  changed: () => Promise<unknown>
  onClose: () => void
}

/** The words of a list, at spaces, commas and lines. */
const words = (text: string) => text.split(/[\s,]+/).filter(Boolean)

/** The addresses of a list such as dev=https://dev.example.com. */
const addressed = (text: string) => words(text).map((word) => ({ environment: word.split('=')[0] ?? '', url: word.split('=').slice(1).join('=') }))

function MirrorForm({ of, changed, onClose }: MirrorFormProps) {
  const [application, setApplication] = useState(of?.application ?? '')
  const [environments, setEnvironments] = useState(of?.environments.join(', ') ?? '')
  const [credential, setCredential] = useState(of?.credential ?? '')
  const [enabled, setEnabled] = useState(of?.enabled ?? true)
  const [deployments, setDeployments] = useState(of?.deployments ?? false)
  const [addresses, setAddresses] = useState(of?.addresses.map((a) => `${a.environment}=${a.url}`).join(' ') ?? '')
  const [plans, setPlans] = useState(of?.plans ?? true)
  const [reason, setReason] = useState('')
  const id = useId()
  const save = useChange(
    async () =>
      accepted(
        (await ask(PutForgeMirror, { input: { application, environments: words(environments), credential, enabled, deployments, addresses: addressed(addresses), plans, reason } })).putForgeMirror,
      ),
    () => {
      announce('Publishing saved')
      void changed()
      onClose()
    },
  )
  const problem = (field: string) => findingsUnder(save.error, field)[0]?.message
  return (
    <Dialog title={of ? `Publishing of ${of.application}` : 'Publish an application'} submit="Save" busy={save.isPending} onSubmit={() => save.mutate(undefined)} onClose={onClose}>
      {!of && (
        <Field id={`${id}-application`} label="Application" problem={problem('application')}>
          <input id={`${id}-application`} aria-describedby={`${id}-application-notes`} required value={application} onChange={(e) => setApplication(e.target.value)} />
        </Field>
      )}
      <Field id={`${id}-enabled`} label="Publish statuses of commits" inline>
        <input id={`${id}-enabled`} aria-describedby={`${id}-enabled-notes`} type="checkbox" checked={enabled} onChange={(e) => setEnabled(e.target.checked)} />
      </Field>
      <Field id={`${id}-deployments`} label="Publish deployments, at GitHub and GitLab" problem={problem('deployments')} inline>
        <input id={`${id}-deployments`} aria-describedby={`${id}-deployments-notes`} type="checkbox" checked={deployments} onChange={(e) => setDeployments(e.target.checked)} />
      </Field>
      <Field
        id={`${id}-addresses`}
        label="Addresses"
        help="Where the application is reached, for deployments, such as production=https://shop.example.com; separated by spaces."
        problem={problem('addresses')}
      >
        <input id={`${id}-addresses`} aria-describedby={`${id}-addresses-notes`} value={addresses} onChange={(e) => setAddresses(e.target.value)} />
      </Field>
      <Field id={`${id}-plans`} label="Show it in the plans of pull requests" inline>
        <input id={`${id}-plans`} aria-describedby={`${id}-plans-notes`} type="checkbox" checked={plans} onChange={(e) => setPlans(e.target.checked)} />
      </Field>
      <Field id={`${id}-environments`} label="Environments" help="Names, separated by commas; empty for all." problem={problem('environments')}>
        <input id={`${id}-environments`} aria-describedby={`${id}-environments-notes`} value={environments} onChange={(e) => setEnvironments(e.target.value)} />
      </Field>
      <Field id={`${id}-credential`} label="Credential" help="Its name; empty for the one with the longest matching URL." problem={problem('credential')}>
        <input id={`${id}-credential`} aria-describedby={`${id}-credential-notes`} value={credential} onChange={(e) => setCredential(e.target.value)} />
      </Field>
      <Reason value={reason} onChange={setReason} />
      <FormError error={save.error} shown={(path) => ['application', 'deployments', 'addresses', 'environments', 'credential'].includes(String(path[0]))} />
    </Dialog>
  )
}
