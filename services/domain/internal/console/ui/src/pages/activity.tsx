// Who did what, where and when: changes of controls and what was done to rollouts, with what changed; and whether the record is whole.
import { Fragment, useEffect, useId, useState } from 'react'
import { Link, useSearchParams } from 'react-router'
import { ask } from '../api/client'
import { Activity as Operation, JournalChain, Viewer, type JournalChainData } from '../api/generated'
import { always, useAsk } from '../api/hooks'
import { ability } from '../logic/ability'
import { actionWords, asked, fieldChanges, filterNames, subjectPage, subjectWords, type Entry, type FilterName } from '../logic/activity'
import { announce } from '../parts/announce'
import { useFirst } from '../parts/fold'
import { sentence } from '../parts/form'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Chip } from '../parts/state'
import { Ago } from '../parts/time'
import { EnvironmentLink } from '../parts/named'

const title = 'Activity'

export default function Activity() {
  const viewer = useAsk(Viewer, {})
  if (!viewer.data) {
    return (
      <Page title={title}>
        <Waiting query={viewer} what="activity" />
      </Page>
    )
  }
  if (!viewer.data.viewer.permissions.includes('ADMINISTER')) {
    const { reason } = ability(viewer.data.viewer.viewerCan, 'accessChanges')
    return (
      <Page title={title}>
        <Empty icon="gate" title="The activity is for owners">
          <p>{reason ? sentence(reason) : 'It names who did what in the whole organization.'}</p>
          <p>
            What was done to one rollout is in the journal on its page: <Link to="/rollouts">all rollouts</Link>
          </p>
        </Empty>
      </Page>
    )
  }
  return (
    <Page title={title} lead={<p>Who did what, newest first: every change of a control, and what people, machines and policies did to rollouts.</p>}>
      <Chain />
      <Filters />
      <Entries />
    </Page>
  )
}

type Check = { block: number; head: string; problem: string | null; at: string | null }

/** The whole chain, stretch by stretch. */
async function checkAll(report: (block: number) => void): Promise<Check> {
  for (let after = 0; ; ) {
    const { journalChain: part } = await ask(JournalChain, { first: 100, after })
    if (part.problem || !part.more) return { block: part.block, head: part.head, problem: part.problem, at: null }
    after = part.block
    report(after)
  }
}

/** Whether the journals are what was sealed: what the daily check found, and a check of everything on request. */
function Chain() {
  // The first block alone: what is shown is what the daily check found of all.
  const query = useAsk(JournalChain, { first: 1, after: 0 }, { once: true })
  const [state, setState] = useState<{ upTo: number } | { error: string } | Check | null>(null)
  const busy = state !== null && 'upTo' in state
  const check = () => {
    setState({ upTo: 0 })
    checkAll((upTo) => setState({ upTo })).then(
      (found) => {
        setState({ ...found, at: new Date().toISOString() })
        announce(found.problem ? 'The record differs from what was sealed.' : 'The record is what was sealed.')
      },
      (e: unknown) => setState({ error: e instanceof Error ? e.message : String(e) }),
    )
  }
  const found = state !== null && 'block' in state ? state : query.data ? known(query.data.journalChain) : null
  return (
    <section className="card chain" aria-labelledby="chain">
      <header className="line">
        <h2 id="chain">The record</h2>
        {found === null && !query.error && <span className="faint">Looking at its seals…</span>}
        {found && <Verdict found={found} />}
        <button type="button" onClick={check} disabled={busy}>
          Check all of it now
        </button>
      </header>
      {busy && (
        <p role="status" className="faint">
          Checking{state.upTo > 0 ? `: block ${state.upTo} is right` : ''}…
        </p>
      )}
      {state !== null && 'error' in state && <p className="problem">{sentence(state.error)}</p>}
      {query.error && !found && <p className="problem">{sentence(query.error.message)}</p>}
      {found?.problem && <p className="problem">{sentence(found.problem)}</p>}
      {found && found.head !== '' && (
        <p className="faint wrap">
          Block {found.block} has the digest <code>{found.head}</code>
          {found.at && (
            <>
              , checked <Ago at={found.at} />
            </>
          )}
          . Compare it with one that was written down earlier.
        </p>
      )}
    </section>
  )
}

/** What was found last: by the schedule; before its first check, of the first block. */
function known(chain: JournalChainData['journalChain']): Check {
  const { lastCheck } = chain
  const { block, head, problem } = chain.problem || !lastCheck ? chain : lastCheck
  return { block, head, problem, at: lastCheck && !chain.problem ? lastCheck.checkedAt : null }
}

function Verdict({ found }: { found: Check }) {
  if (found.problem) return <Chip tone="bad" icon="failed" word="Differs from what was sealed" />
  if (found.block === 0) return <Chip tone="quiet" icon="pending" word="Nothing sealed yet" />
  if (!found.at) return <Chip tone="quiet" icon="clock" word="Not checked yet" />
  return <Chip tone="good" icon="completed" word="Unchanged since it was sealed" />
}

const labels: Record<FilterName, { label: string; type: 'search' | 'date'; placeholder?: string }> = {
  who: { label: 'Who', type: 'search', placeholder: 'a member' },
  action: { label: 'What', type: 'search', placeholder: 'an action' },
  application: { label: 'Application', type: 'search', placeholder: 'its name' },
  environment: { label: 'Environment', type: 'search', placeholder: 'its name' },
  since: { label: 'From', type: 'date' },
  until: { label: 'Before', type: 'date' },
}

/** Suggestions, not all there are: any mutation, and any event of rollouts' journals. */
const actions = [
  'approve', 'reject', 'create', 'cancel', 'pause', 'resume', 'abort', 'retry', 'breakGlass', 'createFlowDefinition', 'updateEnvironment', 'setEnvironmentApproval', 'setEnvironmentChecks', 'setRollbackPolicy', 'setRolloutPolicy', 'createMember', 'setMemberRole', 'removeMember',
  'createToken', 'revokeToken',
]

type Values = Record<FilterName, string>

function valuesOf(search: URLSearchParams): Values {
  return Object.fromEntries(filterNames.map((name) => [name, search.get(name) ?? ''])) as Values
}

/** They count when they are applied: half a name finds nobody. */
function Filters() {
  const [search, setSearch] = useSearchParams()
  const [values, setValues] = useState(() => valuesOf(search))
  const id = useId()
  useEffect(() => setValues(valuesOf(search)), [search])
  const apply = () => setSearch(new URLSearchParams(filterNames.flatMap((name) => (values[name].trim() ? [[name, values[name].trim()]] : []))))
  return (
    <form
      className="filters"
      role="search"
      aria-label="Filter the activity"
      onSubmit={(e) => {
        e.preventDefault()
        apply()
      }}
    >
      {filterNames.map((name) => (
        <span className="pick" key={name}>
          <label htmlFor={`${id}-${name}`}>{labels[name].label}</label>
          <input
            id={`${id}-${name}`}
            type={labels[name].type}
            placeholder={labels[name].placeholder}
            list={name === 'action' ? `${id}-actions` : undefined}
            value={values[name]}
            onChange={(e) => setValues({ ...values, [name]: e.target.value })}
          />
        </span>
      ))}
      <datalist id={`${id}-actions`}>
        {actions.map((a) => (
          <option key={a} value={a} />
        ))}
      </datalist>
      <button type="submit">Apply</button>
      {filterNames.some((name) => search.has(name)) && <Link to="?">Clear</Link>}
    </form>
  )
}

function Entries() {
  const [search] = useSearchParams()
  const after = search.get('after')
  const { filter, problem } = asked(search)
  const query = useAsk(Operation, { filter, first: 50, after }, { follows: always, enabled: problem === '' })
  const filtered = Object.keys(filter).length > 0
  if (problem) {
    return (
      <Empty icon="failed" title="The activity cannot be shown">
        <p>{problem}</p>
        <p>
          <Link to="?">Show everything</Link>
        </p>
      </Empty>
    )
  }
  if (!query.data) return <Waiting query={query} what="activity" />
  const { nodes, pageInfo } = query.data.audit
  return (
    <>
      {nodes.length === 0 ? (
        <Empty icon="docs" title={filtered ? 'Nothing matches' : 'Nothing was done yet'}>
          <p>{filtered ? 'Nobody did this in this time, as far as the record goes back.' : 'The first change of a control appears here.'}</p>
          {filtered && (
            <p>
              <Link to="?">Show everything</Link>
            </p>
          )}
        </Empty>
      ) : (
        <Table entries={nodes} old={query.isPlaceholderData} />
      )}
      <More info={pageInfo} after={after} />
    </>
  )
}

function Table({ entries, old }: { entries: Entry[]; old: boolean }) {
  return (
    <div className={old ? 'scroll card old' : 'scroll card'} tabIndex={0} role="region" aria-label="Activity, newest first" aria-busy={old}>
      <table className="list activity">
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Who</th>
            <th scope="col">What</th>
            <th scope="col">Where</th>
            <th scope="col">
              <span className="visually-hidden">Details</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {entries.map((e) => (
            <Row key={`${e.journal} ${e.position}`} entry={e} />
          ))}
        </tbody>
      </table>
    </div>
  )
}

function Row({ entry }: { entry: Entry }) {
  const [open, setOpen] = useState(false)
  const id = useId()
  const page = subjectPage(entry)
  const words = subjectWords(entry)
  return (
    <Fragment>
      <tr data-action={entry.action}>
        <td>
          <Ago at={entry.createdAt} />
        </td>
        <td>
          <By entry={entry} />
        </td>
        <td>
          <strong>{actionWords(entry.action)}</strong> {page ? <Link to={page}>{words}</Link> : <bdi className="wrap">{words}</bdi>}
          {entry.reason && (
            <div className="faint brief" dir="auto" title={entry.reason}>
              {entry.reason}
            </div>
          )}
        </td>
        <td>
          <Where entry={entry} />
        </td>
        <td className="acts">
          <button type="button" className="quiet" aria-expanded={open} aria-controls={open ? id : undefined} onClick={() => setOpen(!open)}>
            {open ? 'Hide' : 'Details'}
            <span className="visually-hidden">
              {' '}
              of {actionWords(entry.action)} {words}
            </span>
          </button>
        </td>
      </tr>
      {open && (
        <tr id={id} className="details">
          <td colSpan={5}>
            <Details entry={entry} />
          </td>
        </tr>
      )}
    </Fragment>
  )
}

function By({ entry }: { entry: Entry }) {
  const name = entry.principalName || (entry.principalId ? `${entry.principalType} ${entry.principalId}` : `the ${entry.principalType}`)
  const kind = entry.principalType === 'user' || !entry.principalName ? '' : entry.principalType
  if (!entry.principalId) return <bdi className="wrap">{name}</bdi>
  return (
    <>
      <Link to={`?${new URLSearchParams({ who: `member_${entry.principalId}` })}`} title={`Everything that ${name} did`}>
        <bdi className="wrap">{name}</bdi>
      </Link>{' '}
      {kind && kind !== entry.principalName && <span className="faint">{kind}</span>}
    </>
  )
}

function Where({ entry: { application, environment } }: { entry: Entry }) {
  if (!application && !environment) return <span className="faint">organization</span>
  return (
    <>
      {application && <Link to={`/applications/${encodeURIComponent(application.name)}`}>{application.name}</Link>}
      {application && environment && ' · '}
      {environment && <EnvironmentLink of={environment} />}
    </>
  )
}

function Details({ entry }: { entry: Entry }) {
  const changes = fieldChanges(entry.before, entry.after)
  return (
    <div className="stack">
      {entry.reason && <p dir="auto">{entry.reason}</p>}
      {entry.detail && (
        <p>
          {entry.journal === 'rollout' ? 'Gate: ' : ''}
          <bdi className="wrap">{entry.detail}</bdi>
        </p>
      )}
      {changes.length > 0 && <Differences entry={entry} />}
      {changes.length === 0 && entry.journal === 'change' && <p className="faint">Nothing of the control itself is recorded as different.</p>}
      <p className="faint wrap">
        <time dateTime={entry.createdAt}>{new Date(entry.createdAt).toISOString()}</time> · position {entry.position} · <code>{entry.action}</code>
        {entry.subject && (
          <>
            {' '}
            · <code>{entry.subject}</code>
          </>
        )}
        {entry.traceId && (
          <>
            {' '}
            · trace <code>{entry.traceId}</code>
          </>
        )}
      </p>
    </div>
  )
}

/** The fields that a change changed. Fields that are new or removed are marked in words. */
function Differences({ entry }: { entry: Entry }) {
  const [shown, more] = useFirst(fieldChanges(entry.before, entry.after), 30, 'fields')
  return (
    <>
      <table className="fields">
        <thead>
          <tr>
            <th scope="col">Field</th>
            <th scope="col">Before</th>
            <th scope="col">After</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((c) => (
            <tr key={c.path}>
              <th scope="row">
                <code>{c.path || 'value'}</code>
              </th>
              <Value value={c.before} sign="removed" />
              <Value value={c.after} sign="added" />
            </tr>
          ))}
        </tbody>
      </table>
      {more}
    </>
  )
}

function Value({ value, sign }: { value: string | null; sign: 'added' | 'removed' }) {
  if (value === null) return <td className="faint">none</td>
  if (value === '') return <td className="faint">empty</td>
  return (
    <td className={sign} dir="auto">
      {value}
    </td>
  )
}
