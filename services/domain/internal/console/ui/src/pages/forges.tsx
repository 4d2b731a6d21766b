// What forges report of commits: the hooks that receive it, what counts for checks, and what was refused of their deliveries.
import { useId, useState } from 'react'
import { Link, useSearchParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { AddForgeHook, ForgeHooks, ForgeRefusals, RemoveForgeHook, Viewer, type ForgeHooksData, type ForgeKind } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { announce } from '../parts/announce'
import { phases } from '../parts/checks'
import { Confirm } from '../parts/confirm'
import { Dialog } from '../parts/dialog'
import { Field, findingsUnder, FormError, sentence } from '../parts/form'
import { Empty, Page, Waiting } from '../parts/page'
import { Reason } from '../parts/reason'
import { Secret } from '../parts/secret'
import { Chip } from '../parts/state'
import { Ago } from '../parts/time'
import { ForgeAccounts } from './forge-accounts'

type Hook = ForgeHooksData['forgeHooks'][number]
type Report = ForgeHooksData['forgeReports'][number]
interface Made {
  number: number
  path: string
  secret: string
}

const kinds: Record<ForgeKind, string> = { GITHUB: 'GitHub', GITLAB: 'GitLab', GITEA: 'Gitea or Forgejo' }

/** How many reports are on a page. */
const most = 50

export default function Forges() {
  const [search] = useSearchParams()
  const before = Number(search.get('before')) || null
  const query = useAsk(ForgeHooks, { first: most, before })
  const viewer = useAsk(Viewer, {})
  const configures = viewer.data?.viewer.permissions.includes('CONFIGURE') ?? false
  const [adding, setAdding] = useState(false)
  const [made, setMade] = useState<Made | null>(null)
  const changed = () => query.refetch()
  return (
    <Page
      title="Forges"
      lead={
        <p>
          Statuses of commits that GitHub, GitLab, Gitea and Forgejo report count for checks of kind status. Nothing counts until there is a hook. What is
          published there is under <Link to="/forges/publishing">Publishing</Link>.
        </p>
      }
      beside={
        configures && (
          <button type="button" className="primary" onClick={() => setAdding(true)}>
            Add a hook
          </button>
        )
      }
    >
      {made && (
        <>
          <Secret what={`The secret of hook ${made.number}`} secret={made.secret} onDone={() => setMade(null)} />
          <p>
            Set it at the forge, for deliveries to <code className="wrap">{made.path}</code> at the public address of the registry service.
          </p>
        </>
      )}
      {!query.data ? (
        <Waiting query={query} what="hooks" />
      ) : (
        <>
          <HookList all={query.data.forgeHooks} configures={configures} changed={changed} />
          <ForgeAccounts all={query.data.forgeAccounts} hooks={query.data.forgeHooks} changed={changed} />
          <ReportList all={query.data.forgeReports} before={before} />
        </>
      )}
      {configures && <Refusals />}
      {adding && <HookForm onMade={setMade} changed={changed} onClose={() => setAdding(false)} />}
    </Page>
  )
}

interface HookListProps {
  all: Hook[]
  configures: boolean
  changed: () => Promise<unknown>
}

function HookList({ all, configures, changed }: HookListProps) {
  const [removing, setRemoving] = useState<Hook | null>(null)
  if (all.length === 0) {
    return (
      <Empty icon="inbox" title="No hooks yet">
        <p>A hook gives a forge an address and a secret, and says which repositories it may report about.</p>
      </Empty>
    )
  }
  return (
    <section className="card" aria-labelledby="hooks">
      <h2 id="hooks">Hooks</h2>
      <div className="scroll" tabIndex={0} role="region" aria-labelledby="hooks">
        <table className="list">
          <thead>
            <tr>
              <th scope="col">Hook</th>
              <th scope="col">Repositories</th>
              <th scope="col">Counts for</th>
              <th scope="col">Last report</th>
              {configures && <th scope="col">Actions</th>}
            </tr>
          </thead>
          <tbody>
            {all.map((h) => (
              <tr key={h.number}>
                <th scope="row">
                  {h.number} <span className="faint">{kinds[h.forge]}</span>
                  <div className="faint">
                    made <Ago at={h.createdAt} /> by <bdi>{h.author}</bdi>
                  </div>
                </th>
                <td className="mono wrap">{h.repositories.join(', ')}</td>
                <td className="wrap">
                  {h.checkKeys.length > 0 ? h.checkKeys.join(', ') : 'all checks'}
                  {h.plans && <div className="faint">comments the plans of pull requests</div>}
                  {h.commands && <div className="faint">takes commands in comments</div>}
                </td>
                <td>{h.reportedAt ? <Ago at={h.reportedAt} /> : 'never'}</td>
                {configures && (
                  <td className="buttons">
                    <button type="button" aria-label={`Remove hook ${h.number}`} onClick={() => setRemoving(h)}>
                      Remove
                    </button>
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {removing && (
        <Confirm
          title={`Remove hook ${removing.number}`}
          submit="Remove"
          reasoned
          done={`Hook ${removing.number} was removed.`}
          onClose={() => setRemoving(null)}
          send={async (reason) => {
            accepted((await ask(RemoveForgeHook, { input: { number: removing.number, reason } })).removeForgeHook)
            await changed()
          }}
        >
          <p>What it has reported no longer counts for what is being rolled out. A passage that was granted stays granted.</p>
        </Confirm>
      )}
    </section>
  )
}

function ReportList({ all, before }: { all: Report[]; before: number | null }) {
  const last = all.at(-1)
  return (
    <section className="card" aria-labelledby="reports">
      <h2 id="reports">Reported statuses</h2>
      <p className="faint">Of each commit and name the latest, in the order in which they first arrived.</p>
      {all.length === 0 ? (
        <p className="faint">{before ? 'No older statuses.' : 'Nothing was reported yet.'}</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-labelledby="reports">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Status</th>
                <th scope="col">Commit</th>
                <th scope="col">Phase</th>
                <th scope="col">Recorded</th>
              </tr>
            </thead>
            <tbody>
              {all.map((r) => (
                <tr key={r.number}>
                  <th scope="row">
                    <span className="wrap">{r.link ? <a href={r.link} rel="noreferrer" target="_blank">{r.context}</a> : r.context}</span>
                    <div className="faint">
                      {r.kind === 'RUN' ? 'check run or job' : 'status'}, hook {r.hook}
                    </div>
                  </th>
                  <td>
                    <code>{r.commit.slice(0, 12)}</code>
                    <div className="faint wrap">{r.repository}</div>
                  </td>
                  <td>
                    <Chip {...phases[r.phase]} />
                    {r.description && <div className="faint wrap">{r.description}</div>}
                  </td>
                  <td>
                    <Ago at={r.changedAt} />
                    <div className="faint">{r.counted ? 'its commit was rolled out' : 'its commit was not rolled out'}</div>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <nav className="line" aria-label="Pages of reported statuses">
        {before && <Link to="/forges">Newest</Link>}
        {last && all.length === most && <Link to={`/forges?before=${last.number}`}>Older</Link>}
      </nav>
    </section>
  )
}

/** For those who may configure the organization: nobody else is answered. */
function Refusals() {
  const query = useAsk(ForgeRefusals, {})
  const all = query.data?.forgeRefusals
  return (
    <section className="card" aria-labelledby="refusals">
      <h2 id="refusals">Refused</h2>
      <p className="faint">What was left out of the deliveries to the hooks, and why. A delivery without the right secret is refused at the forge, and not listed.</p>
      {!all ? (
        <Waiting query={query} what="refusals" />
      ) : all.length === 0 ? (
        <p className="faint">Nothing was refused.</p>
      ) : (
        <ul className="refusals" aria-labelledby="refusals">
          {all.map((r) => (
            <li key={`${r.hook} ${r.what} ${r.reason}`}>
              <p>
                Hook {r.hook}: <span className="mono wrap">{r.what}</span>{' '}
                <span className="faint">
                  <Ago at={r.lastAt} />
                  {r.times > 1 && (
                    <>
                      , {r.times} times since <Ago at={r.firstAt} />
                    </>
                  )}
                </span>
              </p>
              <p className="reason">{sentence(r.reason)}</p>
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}

interface HookFormProps {
  changed: () => Promise<unknown>
  onMade: (made: Made) => void
  onClose: () => void
}

/** The words of a list, at spaces, commas and lines. */
const words = (text: string) => text.split(/[\s,]+/).filter(Boolean)

function HookForm({ changed, onMade, onClose }: HookFormProps) {
  const [forge, setForge] = useState<ForgeKind>('GITHUB')
  const [repositories, setRepositories] = useState('')
  const [keys, setKeys] = useState('')
  const [plans, setPlans] = useState(false)
  const [commands, setCommands] = useState(false)
  const [reason, setReason] = useState('')
  const id = useId()
  const save = useChange(
    async () => accepted((await ask(AddForgeHook, { input: { forge, repositories: words(repositories), checkKeys: words(keys), plans, commands, reason } })).addForgeHook),
    (p) => {
      if (p.made) onMade({ number: p.made.hook.number, path: p.made.path, secret: p.made.secret })
      announce('Hook added')
      void changed()
      onClose()
    },
  )
  return (
    <Dialog title="Add a hook" submit="Add" busy={save.isPending} onSubmit={() => save.mutate(undefined)} onClose={onClose}>
      <Field id={`${id}-forge`} label="Forge">
        <select id={`${id}-forge`} aria-describedby={`${id}-forge-notes`} value={forge} onChange={(e) => setForge(e.target.value as ForgeKind)}>
          {Object.entries(kinds).map(([k, text]) => (
            <option key={k} value={k}>
              {text}
            </option>
          ))}
        </select>
      </Field>
      <Field
        id={`${id}-repositories`}
        label="Repositories"
        help="Host and path in lower case, one per line; * stands for any text, such as github.com/shop/*."
        problem={findingsUnder(save.error, 'repositories')[0]?.message}
      >
        <textarea id={`${id}-repositories`} aria-describedby={`${id}-repositories-notes`} required rows={3} value={repositories} onChange={(e) => setRepositories(e.target.value)} />
      </Field>
      <Field id={`${id}-keys`} label="Checks" help="Keys of the checks that its reports count for; empty for all." problem={findingsUnder(save.error, 'checkKeys')[0]?.message}>
        <input id={`${id}-keys`} aria-describedby={`${id}-keys-notes`} value={keys} onChange={(e) => setKeys(e.target.value)} />
      </Field>
      <Field id={`${id}-plans`} label="Write the plans of pull requests into a comment on them" inline>
        <input id={`${id}-plans`} aria-describedby={`${id}-plans-notes`} type="checkbox" checked={plans} onChange={(e) => setPlans(e.target.checked)} />
      </Field>
      <Field id={`${id}-commands`} label="Take commands that comments on pull requests of proposed changes begin with" inline>
        <input id={`${id}-commands`} aria-describedby={`${id}-commands-notes`} type="checkbox" checked={commands} onChange={(e) => setCommands(e.target.checked)} />
      </Field>
      <Reason value={reason} onChange={setReason} />
      <FormError error={save.error} shown={(path) => path[0] === 'repositories' || path[0] === 'checkKeys'} />
    </Dialog>
  )
}
