// The version sets of an application, and what changed between any two: both are in the address.
import { useId, useState } from 'react'
import { Link, useParams, useSearchParams } from 'react-router'
import { OneSet, Sets as Operation, type SetFields } from '../api/generated'
import { useAsk } from '../api/hooks'
import { Changes, VersionName } from '../parts/changes'
import { Curate } from '../parts/curate'
import { useFirst } from '../parts/fold'
import { Empty, More, NotThere, Page, Waiting } from '../parts/page'
import { Promote } from '../parts/promote'
import { Ago } from '../parts/time'
import { Named } from '../parts/named'

export function Sets() {
  const { name = '' } = useParams()
  const [search, setSearch] = useSearchParams()
  const after = search.get('after')
  const query = useAsk(Operation, { application: name, first: 25, after })
  const [promote, setPromote] = useState<string | null>(null)
  const [curate, setCurate] = useState<SetFields | null>(null)
  const app = query.data?.application
  if (!query.data) {
    return (
      <Page title="Version sets">
        <Waiting query={query} what="version sets" />
      </Page>
    )
  }
  if (!app) return <NotThere what="application" to="/applications" list="All applications" />
  const sets = app.versionSets.nodes
  const b = search.get('to') ?? sets[0]?.id ?? ''
  const a = search.get('from') ?? sets[1]?.id ?? ''
  const choose = (key: 'from' | 'to', id: string) => setSearch({ ...Object.fromEntries(search), from: a, to: b, [key]: id }, { replace: true })
  return (
    <Page title={`Version sets of ${app.name}`} above={<Link to={`/applications/${app.name}`}>{app.name}</Link>} lead={<p>A version set is one version of each source, tested and rolled out together.</p>}>
      {sets.length === 0 ? (
        <Empty icon="app" title="No version sets yet">
          <p>The first is created once every service has a version: push the images, and the registry notifies Lockstep.</p>
        </Empty>
      ) : (
        <div className="stack">
          {sets.length + (after ? 1 : 0) > 1 && <Compare sets={sets} a={a} b={b} choose={choose} />}
          <div className="scroll card" tabIndex={0} role="region" aria-label="Version sets">
            <table className="list">
              <thead>
                <tr>
                  <th scope="col">Set</th>
                  <th scope="col">Versions</th>
                  <th scope="col">Made</th>
                  <th scope="col">
                    <span className="visually-hidden">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {sets.map((s) => (
                  <tr key={s.id}>
                    <th scope="row">
                      {s.name}
                      {s.curated.map((c) => (
                        <div key={c.createdAt} className="faint" dir="auto">
                          {c.name && <strong>{c.name}</strong>} put together by {c.principalName}
                          {c.reason && `: ${c.reason}`}
                        </div>
                      ))}
                    </th>
                    <td>
                      <Entries entries={s.entries} />
                    </td>
                    <td>
                      <Ago at={s.createdAt} />
                    </td>
                    <td className="acts">
                      <button type="button" onClick={() => setCurate(s)} aria-label={`Put together a set like ${s.name}`}>
                        Put together
                      </button>
                      <button type="button" onClick={() => setPromote(s.id)} aria-label={`Roll out ${s.name}`}>
                        Roll out
                      </button>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <More info={app.versionSets.pageInfo} after={after} />
        </div>
      )}
      {curate && <Curate application={app.name} from={curate} onClose={() => setCurate(null)} />}
      {promote && <Promote application={app.name} setId={promote} onClose={() => setPromote(null)} />}
    </Page>
  )
}

function Entries({ entries }: { entries: SetFields['entries'] }) {
  const [shown, more] = useFirst(entries, 10, 'versions')
  return (
    <>
      {shown.map((e) => (
        <div key={e.artifactSource.id} className="wrap">
          <Named of={e.service} /> <VersionName version={e.version} linked />
        </div>
      ))}
      {more}
    </>
  )
}

function Compare({ sets, a, b, choose }: { sets: Array<{ id: string; name: string }>; a: string; b: string; choose: (key: 'from' | 'to', id: string) => void }) {
  const before = useAsk(OneSet, { id: a }, { once: true, enabled: a !== '' })
  const after = useAsk(OneSet, { id: b }, { once: true, enabled: b !== '' })
  return (
    <section className="card" aria-labelledby="compare">
      <h2 id="compare">What changed between</h2>
      <div className="line">
        <Pick label="From" value={a} sets={sets} onChange={(id) => choose('from', id)} name={before.data?.node?.name} />
        <Pick label="To" value={b} sets={sets} onChange={(id) => choose('to', id)} name={after.data?.node?.name} />
      </div>
      {before.data?.node && after.data?.node ? <Changes before={before.data.node} after={after.data.node} /> : <Waiting query={before.error ? before : after} what="difference" />}
    </section>
  )
}

function Pick(props: { label: string; value: string; sets: Array<{ id: string; name: string }>; onChange: (id: string) => void; name: string | undefined }) {
  const id = useId()
  const listed = props.sets.some((s) => s.id === props.value)
  return (
    <span className="pick">
      <label htmlFor={id}>{props.label}</label>
      <select id={id} value={props.value} onChange={(e) => props.onChange(e.target.value)}>
        {!listed && <option value={props.value}>{props.name ?? props.value}</option>}
        {props.sets.map((s) => (
          <option key={s.id} value={s.id}>
            {s.name}
          </option>
        ))}
      </select>
    </span>
  )
}
