// Where a component of an SBOM, an image or a commit is live. What is searched for is in the address.
import { useId, useState } from 'react'
import { Link, useSearchParams } from 'react-router'
import { WhereComponent, WhereDigest, type WhereComponentData } from '../api/generated'
import { useAsk } from '../api/hooks'
import { searched } from '../logic/provenance'
import { VersionName } from '../parts/changes'
import { useFirst } from '../parts/fold'
import { Tier } from '../parts/lane'
import { Empty, Page, Waiting } from '../parts/page'
import { Ago } from '../parts/time'
import { EnvironmentLink, Named } from '../parts/named'

type Place = WhereComponentData['whereComponent'][number]

export default function Find() {
  const [search, setSearch] = useSearchParams()
  const id = useId()
  const q = search.get('q') ?? ''
  const [typed, setTyped] = useState(q)
  return (
    <Page title="Find a component or an image" lead={<p>Where a component is live, by the SBOMs of images, or where a digest is.</p>}>
      <div className="stack">
        <form
          role="search"
          className="line"
          onSubmit={(e) => {
            e.preventDefault()
            setSearch(typed.trim() === '' ? {} : { q: typed.trim() })
          }}
        >
          <label htmlFor={id}>Component, package URL or digest</label>
          <input id={id} value={typed} maxLength={500} placeholder="log4j-core@2.14.1" onChange={(e) => setTyped(e.target.value)} />
          <button type="submit" className="primary">
            Find
          </button>
        </form>
        {q !== '' && <Found key={q} q={q} />}
      </div>
    </Page>
  )
}

function Found({ q }: { q: string }) {
  const what = searched(q)
  const byDigest = 'digest' in what
  const digests = useAsk(WhereDigest, { digest: byDigest ? what.digest : '' }, { enabled: byDigest })
  const components = useAsk(WhereComponent, byDigest ? { name: '', version: '' } : what, { enabled: !byDigest })
  const places: Place[] | undefined = byDigest ? digests.data?.whereDigest : components.data?.whereComponent
  if (!places) return <Waiting query={byDigest ? digests : components} what="places" />
  if (places.length === 0) {
    return (
      <Empty icon="where" title="It is live nowhere">
        <p>{byDigest ? 'No environment runs a version with this digest.' : 'No SBOM of a live version lists it under this name. Images without an SBOM are not searched.'}</p>
      </Empty>
    )
  }
  return <Places all={places} />
}

function Places({ all }: { all: Place[] }) {
  const [shown, more] = useFirst(all, 50, 'places')
  return (
    <>
      <p role="status">
        {all.length >= 500 ? 'The first 500 places' : `${all.length} ${all.length === 1 ? 'place' : 'places'}`}
      </p>
      <div className="scroll card" tabIndex={0} role="region" aria-label="Where it is live">
        <table className="list">
          <thead>
            <tr>
              <th scope="col">Application</th>
              <th scope="col">Environment</th>
              <th scope="col">Version</th>
              <th scope="col">Component</th>
              <th scope="col">Live since</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((p, i) => (
              <tr key={i}>
                <th scope="row">
                  <Link to={`/applications/${p.application.name}`}>{p.application.name}</Link> <Named of={p.service} />
                </th>
                <td>
                  <EnvironmentLink of={p.environment} /> <Tier environment={p.environment} />
                </td>
                <td>
                  <VersionName version={p.version} linked />
                </td>
                <td>{p.component ? `${p.component.name} ${p.component.version ?? ''}` : <span className="faint">the image itself</span>}</td>
                <td>
                  <Ago at={p.since} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {more}
    </>
  )
}
