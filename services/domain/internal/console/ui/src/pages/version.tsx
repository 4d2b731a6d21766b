// One version: what verified signatures and attestations state about its image, and which evidence states it.
import { Link, useParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { LookUpProvenance, VersionPage, type VersionPageData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { shortDigest } from '../logic/difference'
import { claim, states } from '../logic/provenance'
import { announce } from '../parts/announce'
import { VersionName } from '../parts/changes'
import { useFirst } from '../parts/fold'
import { FormError, sentence } from '../parts/form'
import { Empty, NotThere, Page, Waiting } from '../parts/page'
import { Chip } from '../parts/state'
import { Ago, Due } from '../parts/time'

type Version = Extract<NonNullable<VersionPageData['node']>, { digest: string }>
type Provenance = NonNullable<Version['provenance']>

export default function VersionDetail() {
  const { id = '' } = useParams()
  const query = useAsk(VersionPage, { id })
  if (!query.data) {
    return (
      <Page title="Version">
        <Waiting query={query} what="version" />
      </Page>
    )
  }
  const version = query.data.node
  if (!version || !('digest' in version)) return <NotThere what="version" to="/applications" list="All applications" />
  return (
    <Page title={version.name} above={<Link to="/find">find</Link>} lead={<p className="wrap mono">{version.reference}</p>} beside={<LookUp version={version} again={() => void query.refetch()} />}>
      <div className="stack">
        <p>
          <VersionName version={version} /> published <Ago at={version.createdAt} />. <Link to={`/find?q=${encodeURIComponent(version.digest)}`}>Where it is live</Link>
        </p>
        {version.provenance ? (
          <Known of={version.provenance} />
        ) : (
          <Empty icon="source" title="Nothing is looked up">
            <p>A commit has no signatures, and images are looked up once a signer is configured.</p>
          </Empty>
        )}
      </div>
    </Page>
  )
}

function LookUp({ version, again }: { version: Version; again: () => void }) {
  const change = useChange(
    async () => accepted((await ask(LookUpProvenance, { input: { versionId: version.id } })).lookUpProvenance),
    () => {
      announce(`The signatures of ${version.name} are looked up.`)
      again()
    },
  )
  return (
    <>
      <button type="button" disabled={change.isPending} onClick={() => change.mutate(undefined)}>
        Look up again
      </button>
      <FormError error={change.error} shown={() => false} />
    </>
  )
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd dir="auto">{children ?? <span className="faint">not known</span>}</dd>
    </div>
  )
}

const listed = (all: string[]) => (all.length === 0 ? null : all.join(', '))

function Known({ of }: { of: Provenance }) {
  const v = of.vulnerabilities
  return (
    <>
      <section className="card" aria-labelledby="facts">
        <h2 id="facts">Facts</h2>
        {of.problem && (
          <p className="problem" dir="auto">
            The last lookup failed: {sentence(of.problem)}
          </p>
        )}
        <p className="faint">
          {of.lookedAt ? (
            <>
              Looked up <Ago at={of.lookedAt} />
            </>
          ) : (
            'Never looked up successfully'
          )}
          {of.nextLookAt && (
            <>
              , again <Due at={of.nextLookAt} />
            </>
          )}
          . What no verified evidence states is not known; policies see it as absent.
        </p>
        <dl className="config">
          <Fact name="Signed by">{listed(of.signedBy)}</Fact>
          <Fact name="Built by">{listed(of.builders)}</Fact>
          <Fact name="SLSA level">{of.buildLevel}</Fact>
          <Fact name="Built from">{listed(of.sources.map((s) => s.repository + (s.revision ? ` at ${s.revision}` : '')))}</Fact>
          {of.claimed && (
            <Fact name="Claimed by the image">
              {claim(of.claimed)} <span className="faint">Not verified: anyone who may push an image can claim anything. Nothing is decided by it.</span>
            </Fact>
          )}
          <Fact name="SBOM">{of.sbomFormat === null ? null : `${of.sbomFormat}, ${of.componentCount ?? 0} components`}</Fact>
          <Fact name="Critical vulnerabilities">{v && (listed(v.critical) ?? 'none')}</Fact>
          <Fact name="High vulnerabilities">{v && (listed(v.high) ?? 'none')}</Fact>
          <Fact name="Others">{v && `${v.medium} medium, ${v.low} low, ${v.unknown} of no known severity`}</Fact>
          <Fact name="Excluded by VEX">{v && (listed(v.notAffected) ?? 'none')}</Fact>
          <Fact name="Scanned">
            {v?.scannedAt ? (
              <>
                <Ago at={v.scannedAt} /> {v.scanner && `by ${v.scanner}`}
              </>
            ) : null}
          </Fact>
        </dl>
      </section>
      <Evidence of={of} />
      <Components all={of.components} count={of.componentCount} />
    </>
  )
}

function Evidence({ of }: { of: Provenance }) {
  const [shown, more] = useFirst(of.evidence, 20, 'pieces of evidence')
  return (
    <section className="card" aria-labelledby="evidence">
      <h2 id="evidence">Evidence</h2>
      {of.truncated && <p className="faint">More is attached to the image than was read.</p>}
      {of.evidence.length === 0 && <p className="faint">{of.lookedAt ? 'Nothing is attached to the image.' : 'What is attached to the image is not known yet.'}</p>}
      {of.evidence.length > 0 && (
        <div className="scroll" tabIndex={0} role="region" aria-labelledby="evidence">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">States</th>
                <th scope="col">Outcome</th>
                <th scope="col">Signed by</th>
                <th scope="col">Digest</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((e, i) => (
                <tr key={`${e.digest} ${i}`}>
                  <th scope="row">
                    {states(e.predicateType)}
                    <div className="faint">{e.form.replaceAll('-', ' ')}</div>
                  </th>
                  <td>
                    {e.signer === null ? <Chip tone="bad" icon="failed" word="Refused" /> : <Chip tone="good" icon="completed" word="Verified" />}
                    {e.problem && <div dir="auto">{sentence(e.problem)}</div>}
                  </td>
                  <td>
                    {e.signer ?? <span className="faint">nobody who is trusted</span>}
                    {e.identity && (
                      <div className="faint wrap" dir="auto">
                        {e.identity}
                      </div>
                    )}
                    {e.signedAt && (
                      <div>
                        <Ago at={e.signedAt} />
                      </div>
                    )}
                  </td>
                  <td>
                    <code title={e.digest}>{shortDigest(e.digest)}</code>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {more}
    </section>
  )
}

function Components({ all, count }: { all: Provenance['components']; count: number | null }) {
  const [shown, more] = useFirst(all, 50, 'components')
  if (all.length === 0) return null
  return (
    <section className="card" aria-labelledby="components">
      <h2 id="components">Components</h2>
      {count !== null && count > all.length && (
        <p className="faint">
          {all.length} of {count}.
        </p>
      )}
      <ul className="plain">
        {shown.map((c) => {
          const name = c.purl ?? (c.version ? `${c.name}@${c.version}` : c.name)
          return (
            <li key={name} className="wrap">
              <Link to={`/find?q=${encodeURIComponent(name)}`}>
                {c.name} {c.version}
              </Link>{' '}
              {c.purl && <code className="faint">{c.purl}</code>}
            </li>
          )
        })}
      </ul>
      {more}
    </section>
  )
}
