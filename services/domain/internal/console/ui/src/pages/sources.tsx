// Where artifacts come from: the status of each source, as the registry service reports it, and a button to poll it now.
import { useState } from 'react'
import { Link, useSearchParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { DisableSource, EnableSource, LookAtSource, RemoveSource, Sources as Operation, Viewer, type SourceFields } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { sourceName } from '../logic/difference'
import { announce } from '../parts/announce'
import { DigestNotSeen, ImageDeleted } from '../parts/changes'
import { Confirm } from '../parts/confirm'
import { FormError, sentence } from '../parts/form'
import { Icon } from '../parts/icon'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Senders } from '../parts/senders'
import { Chip } from '../parts/state'
import { Ago, Due } from '../parts/time'
import { Named } from '../parts/named'

export default function Sources() {
  const [search] = useSearchParams()
  const after = search.get('after')
  const application = search.get('application')
  const query = useAsk(Operation, { first: 50, after, application })
  const viewer = useAsk(Viewer, {})
  const nodes = query.data?.artifactSources.nodes
  const add = `/sources/new${application ? `?application=${application}` : ''}`
  return (
    <Page
      title={application ? `Sources of ${application}` : 'Sources'}
      lead={<p>Where versions come from. Registries and CI report new artifacts; some sources are polled as well.</p>}
      beside={
        <Link className="button primary" to={add}>
          New source
        </Link>
      }
    >
      {application && (
        <nav className="tabs" aria-label="Applications">
          <Link to="?" onClick={() => undefined}>
            All applications
          </Link>
        </nav>
      )}
      {!nodes ? (
        <Waiting query={query} what="sources" />
      ) : nodes.length === 0 ? (
        <Empty icon="source" title="No sources yet">
          <p>An application is created with the first source of each of its services.</p>
          <p>
            <Link to="/applications/new">Create an application</Link>
          </p>
        </Empty>
      ) : (
        <div className="scroll card" tabIndex={0} role="region" aria-label="Sources">
          <table className="list sources">
            <thead>
              <tr>
                <th scope="col">Source</th>
                <th scope="col">Status</th>
                <th scope="col">Newest artifact</th>
                <th scope="col">
                  <span className="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {nodes.map((s) => (
                <Row key={s.id} source={s} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {query.data && <More info={query.data.artifactSources.pageInfo} after={after} />}
      {!application && viewer.data?.viewer.permissions.includes('CONFIGURE') && <Senders />}
    </Page>
  )
}

function Row({ source }: { source: SourceFields }) {
  const [seen, setSeen] = useState<{ artifact: string; problem: string } | null>(null)
  const name = sourceName(source)
  const look = useChange(
    async () => accepted((await ask(LookAtSource, { input: { artifactSourceId: source.id } })).lookAtArtifactSource),
    (found) => {
      setSeen(found)
      announce(found.problem ? `Checking ${name} failed` : `Checked ${name}`)
    },
  )
  const [asked, setAsked] = useState<'disable' | 'enable' | 'remove' | null>(null)
  const version = source.versions.nodes[0]
  const { application } = source.service
  return (
    <tr>
      <th scope="row">
        <Link className="mono wrap" to={`/sources/${source.id}`}>
          {name}
        </Link>
        <div className="faint">
          <Link to={`/applications/${application.name}`}>{application.name}</Link> › <Named of={source.service} /> · {source.sourceRef}
        </div>
      </th>
      <td>
        <Standing source={source} />
        {look.isPending && <p role="status">Checking…</p>}
        {seen && !look.isPending && (
          <p role="status" className={seen.problem ? 'reason' : 'help'}>
            {seen.problem ? sentence(seen.problem) : seen.artifact ? `Found ${seen.artifact.replace(/@.*/, '')}.` : 'No matching artifact.'}
          </p>
        )}
        <FormError error={look.error} shown={() => false} />
      </td>
      <td>
        {version ? (
          <>
            <strong>{version.name}</strong> <code className="faint">{version.digest.slice(7, 19)}</code>
            {version.digestSeen === false && <div><DigestNotSeen /></div>}
            {version.deletedAt && <div><ImageDeleted at={version.deletedAt} /></div>}
            <div className="faint">
              <Ago at={version.createdAt} />
            </div>
          </>
        ) : (
          <span className="faint">none yet: push one</span>
        )}
      </td>
      <td className="acts">
        {!source.disabledAt && (
          <button type="button" disabled={look.isPending} onClick={() => look.mutate(undefined)} aria-label={`Check now: ${name}`}>
            Check now
          </button>
        )}
        <button type="button" onClick={() => setAsked(source.disabledAt ? 'enable' : 'disable')} aria-label={`${source.disabledAt ? 'Enable' : 'Disable'} ${name}`}>
          {source.disabledAt ? 'Enable' : 'Disable'}
        </button>
        <button type="button" onClick={() => setAsked('remove')} aria-label={`Remove ${name}`}>
          Remove
        </button>
        {asked && <Change source={source} to={asked} onClose={() => setAsked(null)} />}
      </td>
    </tr>
  )
}

/** Asks before a source is disabled, enabled or removed. */
function Change({ source, to, onClose }: { source: SourceFields; to: 'disable' | 'enable' | 'remove'; onClose: () => void }) {
  const name = sourceName(source)
  const input = (reason: string) => ({ input: { artifactSourceId: source.id, reason } })
  if (to === 'enable') {
    return (
      <Confirm title={`Enable ${name}`} submit="Enable" tone="primary" reasoned done={`${name} is enabled.`} send={async (reason) => accepted((await ask(EnableSource, input(reason))).enableArtifactSource)} onClose={onClose}>
        <p>It takes versions again. What was published meanwhile is found by its next check, or when it is reported again.</p>
      </Confirm>
    )
  }
  if (to === 'remove') {
    return (
      <Confirm title={`Remove ${name}`} submit="Remove" reasoned done={`${name} is removed.`} send={async (reason) => accepted((await ask(RemoveSource, input(reason))).removeArtifactSource)} onClose={onClose}>
        <p>New version sets do not have it, and it is not brought back. Its versions and the sets that have them stay. To move to another repository, replace it instead.</p>
      </Confirm>
    )
  }
  return (
    <Confirm title={`Disable ${name}`} submit="Disable" reasoned done={`${name} is disabled.`} send={async (reason) => accepted((await ask(DisableSource, input(reason))).disableArtifactSource)} onClose={onClose}>
      <p>It takes no versions: it is not polled, and what is reported for it is ignored. Version sets keep its last version; without one, they do not wait for it.</p>
    </Confirm>
  )
}

/** Last look, next look, and what went wrong. */
function Standing({ source: { state, disabledAt } }: { source: SourceFields }) {
  if (disabledAt) {
    return (
      <>
        <Chip tone="quiet" icon="cancelled" word="Disabled" />
        <div className="faint">
          <Ago at={disabledAt} />: version sets keep its last version.
        </div>
      </>
    )
  }
  if (!state) {
    return (
      <>
        <Chip tone="quiet" icon="pending" word="Not known" />
        <div className="faint">The registry service does not answer, or does not know this source yet.</div>
      </>
    )
  }
  const failing = state.failures > 0
  return (
    <>
      {failing ? <Chip tone="bad" icon="failed" word={`Failing, ${state.failures} in a row`} />
      : !state.polled ? <Chip tone="quiet" icon="inbox" word="Webhooks and CI" />
      : state.lookedAt ? <Chip tone="good" icon="completed" word="Working" />
      : <Chip tone="quiet" icon="pending" word="Not checked yet" />}
      {state.lastError && <p className="reason">{sentence(state.lastError)}</p>}
      <div className="faint">
        {state.lookedAt && (
          <>
            Last checked <Ago at={state.lookedAt} />
          </>
        )}
        {state.nextLookAt && (
          <>
            {state.lookedAt ? ', next ' : 'Next check '}
            <Due at={state.nextLookAt} />
          </>
        )}
      </div>
      {state.lastArtifact && (
        <div className="faint">
          <Icon name="arrow" /> saw <span className="mono">{state.lastArtifact.replace(/@.*/, '').replace(/^.*\//, '')}</span>
        </div>
      )}
    </>
  )
}
