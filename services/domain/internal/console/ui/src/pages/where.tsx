// Live versions: applications down, environments across. Filters and pages are the server's, and in the address.
import { memo, useCallback, useId, useMemo, useState } from 'react'
import { Link, Navigate, useSearchParams } from 'react-router'
import { Columns, Where as WhereOperation, type WhereData } from '../api/generated'
import { useAsk } from '../api/hooks'
import { byTier, filterOf, filterNames, healths, states } from '../logic/where'
import { Cell } from '../parts/cell'
import { Tier } from '../parts/lane'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Promote } from '../parts/promote'
import { stateWord } from '../parts/state'
import { Ago } from '../parts/time'
import { useTyped } from '../parts/typed'
import { displayed } from '../logic/names'
import { EnvironmentLink } from '../parts/named'

type RowData = WhereData['matrix']['nodes'][number]
type Column = { id: string; name: string; tier: string }

const pageSize = 20

export function Where() {
  const [search] = useSearchParams()
  const after = search.get('after')
  const filter = filterOf(search)
  const query = useAsk(
    WhereOperation,
    { first: pageSize, after, filter },
    // With a filter, a row of any application may begin to meet it.
    { follows: (touched, data) => filter !== null || data.matrix.nodes.length < pageSize || data.matrix.nodes.some((r) => touched.applications.has(r.application.id)) },
  )
  const environments = useAsk(Columns, {})
  const rows = query.data?.matrix.nodes
  const all = environments.data?.environments.nodes
  const columns = useMemo(() => {
    const used = new Set((rows ?? []).flatMap((r) => r.cells.map((c) => c.environment.id)))
    return (all ?? []).filter((e) => used.has(e.id)).sort(byTier)
  }, [rows, all])
  if (!query.data || !rows || !all) {
    return (
      <Page title="Live versions">
        <Waiting query={query.error ? query : environments} what="matrix" />
      </Page>
    )
  }
  const beginning = !after && !filter && rows.length <= 1 && !rows[0]?.cells.some((c) => c.latest)
  if (beginning) return <Navigate to="/start" replace />
  return (
    <Page title="Live versions" lead={<p>The version set that is live in each environment, its health, and what is being rolled out.</p>} beside={<Link className="button" to="/find">Find a component</Link>}>
      <Filters environments={all} />
      {rows.length === 0 ? <NoRows after={after} /> : <Matrix rows={rows} columns={columns} old={query.isPlaceholderData} />}
      <More info={query.data.matrix.pageInfo} after={after} />
    </Page>
  )
}

function NoRows({ after }: { after: string | null }) {
  return (
    <Empty icon="where" title="No matching applications">
      <p>{after ? 'This page is empty now.' : 'All conditions have to match in the same environment.'}</p>
      <p>
        <Link to="?">Show everything</Link>
      </p>
    </Empty>
  )
}

const capital = (word: string) => word.charAt(0).toUpperCase() + word.slice(1)

function Filters({ environments }: { environments: Column[] }) {
  const [search, setSearch] = useSearchParams()
  const id = useId()
  const set = useCallback(
    (name: string, value: string) =>
      setSearch(
        (before) => {
          const next = new URLSearchParams(before)
          next.delete('after')
          if (value) next.set(name, value)
          else next.delete(name)
          return next
        },
        { replace: true },
      ),
    [setSearch],
  )
  const [text, setText] = useTyped(search.get('q') ?? '', (value) => set('q', value))
  const any = filterNames.some((name) => search.has(name))
  const choice = (name: string, label: string, none: string, options: Array<[value: string, word: string]>) => (
    <span className="pick">
      <label htmlFor={`${id}-${name}`}>{label}</label>
      <select id={`${id}-${name}`} value={search.get(name) ?? ''} onChange={(e) => set(name, e.target.value)}>
        <option value="">{none}</option>
        {options.map(([value, word]) => (
          <option key={value} value={value}>
            {word}
          </option>
        ))}
      </select>
    </span>
  )
  return (
    <form className="filters" role="search" aria-label="Filter the matrix" onSubmit={(e) => e.preventDefault()}>
      <span className="pick">
        <label htmlFor={`${id}-q`}>Application</label>
        <input id={`${id}-q`} type="search" placeholder="part of its name" value={text} onChange={(e) => setText(e.target.value)} />
      </span>
      {choice('environment', 'Environment', 'all', [...environments].sort(byTier).map((e) => [e.name, displayed(e)]))}
      {choice('state', 'State', 'any', states.map((s) => [s.toLowerCase(), capital(stateWord(s))]))}
      {choice('health', 'Health', 'any', healths.map((h) => [h.toLowerCase(), capital(stateWord(h))]))}
      {choice('waiting', 'Gate', 'any', [['yes', 'Open']])}
      {any && <Link to="?">Clear</Link>}
    </form>
  )
}

function Matrix({ rows, columns, old }: { rows: RowData[]; columns: Column[]; old: boolean }) {
  const [promote, setPromote] = useState<string | null>(null)
  return (
    <div className={old ? 'scroll card old' : 'scroll card'} tabIndex={0} role="region" aria-label="Applications by environment" aria-busy={old}>
      <table className="matrix">
        <thead>
          <tr>
            <th scope="col">Application</th>
            {columns.map((e) => (
              <th scope="col" key={e.id}>
                <EnvironmentLink of={e} />
                <div>
                  <Tier environment={e} />
                </div>
              </th>
            ))}
            <th scope="col">
              <span className="visually-hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((r) => (
            <Row key={r.application.id} row={r} columns={columns} promote={setPromote} />
          ))}
        </tbody>
      </table>
      {promote && <Promote application={promote} onClose={() => setPromote(null)} />}
    </div>
  )
}

/** What has not changed is the same object after a refresh, so that only rows that have are drawn again. */
const Row = memo(function Row({ row, columns, promote }: { row: RowData; columns: Column[]; promote: (application: string) => void }) {
  const { application, newest, cells } = row
  return (
    <tr>
      <th scope="row">
        <Link to={`/applications/${application.name}`}>{application.name}</Link>
        {newest ? (
          <div className="faint">
            newest <Link to={`/applications/${application.name}/sets`}>{newest.name}</Link>, <Ago at={newest.createdAt} />
          </div>
        ) : (
          <div className="faint">no version set yet</div>
        )}
      </th>
      {columns.map((e) => {
        const cell = cells.find((c) => c.environment.id === e.id)
        return (
          <td key={e.id} data-label={displayed(e)}>
            {cell ? <Cell cell={cell} application={application.name} /> : <span className="faint">not in its pipeline</span>}
          </td>
        )
      })}
      <td>
        <button type="button" onClick={() => promote(application.name)} aria-label={`Roll out ${application.name}`}>
          Roll out
        </button>
      </td>
    </tr>
  )
})
