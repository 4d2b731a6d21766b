// What can be read without signing in: feeds, each at a secret address that is shown once, and badges of applications.
import { useId, useState } from 'react'
import { accepted, ask } from '../api/client'
import { Applications, CreateFeed, Feeds as Operation, RevokeFeed, SetBadges, type FeedKind, type FeedsData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { announce } from './announce'
import { Confirm } from './confirm'
import { Dialog } from './dialog'
import { Field, findingsUnder, FormError } from './form'
import { Waiting } from './page'
import { Reason } from './reason'
import { Secret } from './secret'
import { Ago } from './time'

type Feed = FeedsData['feeds'][number]
type Badge = FeedsData['badges'][number]

const kinds: Record<FeedKind, string> = { PRODUCTION_CHANGES: 'changes in production (Atom)', FREEZES: 'freezes (calendar)', WINDOWS: 'windows of schedules (calendar)' }

/** The badge of an environment in Markdown. Its address is a path where the service does not know that of the console. */
const snippet = (badge: Badge, environment: string) =>
  `![${badge.application} in ${environment}](${new URL(badge.url.replace('{environment}', encodeURIComponent(environment)), location.origin).href})`

export function Feeds() {
  const query = useAsk(Operation, {})
  const changed = () => query.refetch()
  if (!query.data) return <Waiting query={query} what="feeds" />
  return (
    <>
      <FeedList all={query.data.feeds} changed={changed} />
      <BadgeList all={query.data.badges} changed={changed} />
    </>
  )
}

interface FeedListProps {
  all: Feed[]
  changed: () => Promise<unknown>
}

function FeedList({ all, changed }: FeedListProps) {
  const [making, setMaking] = useState(false)
  const [made, setMade] = useState<{ name: string; url: string } | null>(null)
  const [revoking, setRevoking] = useState<Feed | null>(null)
  return (
    <section className="card" aria-labelledby="feeds">
      <header className="line">
        <h2 id="feeds">Feeds</h2>
        <button type="button" onClick={() => setMaking(true)}>
          Make a feed
        </button>
      </header>
      {made && <Secret what={`The address of the feed “${made.name}”`} secret={made.url} onDone={() => setMade(null)} />}
      {all.length === 0 ? (
        <p className="faint">No feeds. A feed is read at its address, without signing in.</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-label="Feeds">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Feed</th>
                <th scope="col">Made</th>
                <th scope="col">Last read</th>
                <th scope="col">Actions</th>
              </tr>
            </thead>
            <tbody>
              {all.map((f) => (
                <tr key={f.name}>
                  <th scope="row">
                    {f.name} <span className="faint">{kinds[f.kind]}</span>
                  </th>
                  <td>
                    <Ago at={f.createdAt} /> by <bdi>{f.author}</bdi>
                  </td>
                  <td>{f.lastReadAt ? <Ago at={f.lastReadAt} /> : 'never'}</td>
                  <td className="buttons">
                    <button type="button" aria-label={`Revoke ${f.name}`} onClick={() => setRevoking(f)}>
                      Revoke
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {making && <FeedForm changed={changed} onMade={setMade} onClose={() => setMaking(false)} />}
      {revoking && (
        <Confirm
          title={`Revoke ${revoking.name}`}
          submit="Revoke"
          reasoned
          done={`${revoking.name} was revoked.`}
          onClose={() => setRevoking(null)}
          send={async (reason) => {
            accepted((await ask(RevokeFeed, { input: { name: revoking.name, reason } })).revokeFeed)
            await changed()
          }}
        >
          <p>Its address ends at once, for everybody who has it.</p>
        </Confirm>
      )}
    </section>
  )
}

interface FeedFormProps {
  changed: () => Promise<unknown>
  onMade: (made: { name: string; url: string }) => void
  onClose: () => void
}

function FeedForm({ changed, onMade, onClose }: FeedFormProps) {
  const [name, setName] = useState('')
  const [kind, setKind] = useState<FeedKind>('PRODUCTION_CHANGES')
  const [reason, setReason] = useState('')
  const id = useId()
  const save = useChange(
    async () => accepted((await ask(CreateFeed, { input: { name, kind, reason } })).createFeed),
    (p) => {
      onMade({ name, url: new URL(p.url ?? '', location.origin).href })
      announce('Feed made')
      void changed()
      onClose()
    },
  )
  return (
    <Dialog title="Make a feed" submit="Make" busy={save.isPending} onSubmit={() => save.mutate(undefined)} onClose={onClose}>
      <Field id={`${id}-name`} label="Name" problem={findingsUnder(save.error, 'name')[0]?.message}>
        <input id={`${id}-name`} aria-describedby={`${id}-name-notes`} required pattern="[a-z0-9][a-z0-9\-]*" maxLength={63} value={name} onChange={(e) => setName(e.target.value)} />
      </Field>
      <Field id={`${id}-kind`} label="What it shows" help="Neither has reasons or names of people.">
        <select id={`${id}-kind`} aria-describedby={`${id}-kind-notes`} value={kind} onChange={(e) => setKind(e.target.value as FeedKind)}>
          {Object.entries(kinds).map(([k, words]) => (
            <option key={k} value={k}>
              {words}
            </option>
          ))}
        </select>
      </Field>
      <Reason value={reason} onChange={setReason} />
      <FormError error={save.error} shown={(path) => path[0] === 'name'} />
    </Dialog>
  )
}

function BadgeList({ all, changed }: { all: Badge[]; changed: () => Promise<unknown> }) {
  const [adding, setAdding] = useState(false)
  const [ending, setEnding] = useState<Badge | null>(null)
  const on = all.filter((b) => b.enabled)
  const applications = useAsk(Applications, { first: 200, after: null }, { enabled: on.length > 0 })
  const environmentsOf = (b: Badge) => applications.data?.applications.nodes.find((a) => a.name === b.application)?.environments.map((e) => e.environment.name) ?? []
  return (
    <section className="card" aria-labelledby="badges">
      <header className="line">
        <h2 id="badges">Badges</h2>
        <button type="button" onClick={() => setAdding(true)}>
          Show badges
        </button>
      </header>
      {on.length === 0 ? (
        <p className="faint">No badges. Anybody can read the badges of an application, without signing in.</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-label="Badges">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Application</th>
                <th scope="col">Environment</th>
                <th scope="col">In Markdown</th>
                <th scope="col">Saved</th>
                <th scope="col">Actions</th>
              </tr>
            </thead>
            <tbody>
              {on.map((b) => (
                <BadgeRow key={b.application} badge={b} environments={applications.isPending ? null : environmentsOf(b)} onEnd={() => setEnding(b)} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {adding && <BadgeForm changed={changed} onClose={() => setAdding(false)} />}
      {ending && (
        <Confirm
          title={`End the badges of ${ending.application}`}
          submit="End"
          reasoned
          done="The badges have ended."
          onClose={() => setEnding(null)}
          send={async (reason) => {
            accepted((await ask(SetBadges, { input: { application: ending.application, enabled: false, reason } })).setBadges)
            await changed()
          }}
        >
          <p>Pages that show them have no picture from then on; caches may have it for a minute more.</p>
        </Confirm>
      )}
    </section>
  )
}

/** The badge of one of an application's environments, which are null until they are known; of an application that is not listed, the name is written. */
function BadgeRow({ badge, environments, onEnd }: { badge: Badge; environments: string[] | null; onEnd: () => void }) {
  const [chosen, setChosen] = useState('')
  const [copied, setCopied] = useState<boolean | null>(null)
  const environment = chosen || (environments?.[0] ?? '')
  const label = `Environment of the badge of ${badge.application}`
  const choose = (name: string) => {
    setChosen(name)
    setCopied(null)
  }
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(snippet(badge, environment))
      setCopied(true)
    } catch {
      setCopied(false)
    }
  }
  return (
    <tr>
      <th scope="row">
        <bdi>{badge.application}</bdi>
      </th>
      <td>
        {environments === null ? null : environments.length > 0 ? (
          <select aria-label={label} value={environment} onChange={(e) => choose(e.target.value)}>
            {environments.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        ) : (
          <input aria-label={label} maxLength={255} value={chosen} onChange={(e) => choose(e.target.value)} />
        )}
      </td>
      <td className="wrap mono">{environment && snippet(badge, environment)}</td>
      <td>
        <Ago at={badge.changedAt} /> by <bdi>{badge.author}</bdi>
      </td>
      <td className="buttons">
        <button type="button" aria-label={`Copy the badge of ${badge.application}`} disabled={!environment} onClick={() => void copy()}>
          Copy
        </button>
        <button type="button" aria-label={`End the badges of ${badge.application}`} onClick={onEnd}>
          End
        </button>
        {copied !== null && <span role="status">{copied ? 'Copied.' : 'This browser does not let the page copy: select it and copy it yourself.'}</span>}
      </td>
    </tr>
  )
}

function BadgeForm({ changed, onClose }: { changed: () => Promise<unknown>; onClose: () => void }) {
  const [application, setApplication] = useState('')
  const [reason, setReason] = useState('')
  const id = useId()
  const save = useChange(
    async () => accepted((await ask(SetBadges, { input: { application, enabled: true, reason } })).setBadges),
    () => {
      announce('Badges are shown')
      void changed()
      onClose()
    },
  )
  return (
    <Dialog title="Show badges" submit="Show" busy={save.isPending} onSubmit={() => save.mutate(undefined)} onClose={onClose}>
      <p>Anybody can read them: the names of the application and of its environments, and how each is.</p>
      <Field id={`${id}-application`} label="Application" problem={findingsUnder(save.error, 'application')[0]?.message}>
        <input id={`${id}-application`} aria-describedby={`${id}-application-notes`} required maxLength={255} value={application} onChange={(e) => setApplication(e.target.value)} />
      </Field>
      <Reason value={reason} onChange={setReason} />
      <FormError error={save.error} shown={(path) => path[0] === 'application'} />
    </Dialog>
  )
}
