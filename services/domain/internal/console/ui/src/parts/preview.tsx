// What a rollout would commit, environment by environment, before it is begun: the server asks the driver, which reads the files as
// they are. It takes a moment, and holds nobody up: one may begin without having waited for it.
import { useEffect, useState } from 'react'
import { accepted, ApiError, ask, Refused } from '../api/client'
import { AskPreview, Preview, type StrategyChoice } from '../api/generated'
import { useAsk } from '../api/hooks'
import type { Json } from '../form/schema'
import { Diffs } from './diff'
import { sentence } from './form'
import { Icon } from './icon'
import { displayed } from '../logic/names'

/** How long a choice has to last before its preview is loaded: arrow keys pass many. */
const settled = 400

/** Only: the environments that a rollback goes to; null for a rollout, which goes to all. */
export function WouldCommit({ setId, strategy, inputs, only }: { setId: string; strategy: StrategyChoice; inputs: Json | null; only: string[] | null }) {
  const given = inputs ? JSON.stringify(inputs) : ''
  const rollback = only !== null
  const [asked, setAsked] = useState<{ id: string } | { problem: string } | null>(null)
  useEffect(() => {
    let gone = false
    setAsked(null)
    const timer = setTimeout(() => {
      void request(setId, strategy, rollback, given).then((answer) => {
        if (!gone) setAsked(answer)
      })
    }, settled)
    return () => {
      gone = true
      clearTimeout(timer)
    }
  }, [setId, strategy, rollback, given])
  return (
    <section className="effect" aria-labelledby="would-commit" aria-busy={!asked}>
      <h3 id="would-commit">What it commits</h3>
      {!asked ? <Working /> : 'id' in asked ? <Answer key={asked.id} id={asked.id} only={only} /> : <Untold reason={asked.problem} />}
    </section>
  )
}

async function request(versionSetId: string, strategy: StrategyChoice, rollback: boolean, given: string): Promise<{ id: string } | { problem: string }> {
  try {
    const { preview } = accepted((await ask(AskPreview, { input: { versionSetId, strategy, rollback, ...(given ? { inputs: JSON.parse(given) as Json } : {}) } })).previewRollout)
    return preview ?? { problem: 'there is no answer' }
  } catch (e) {
    if (e instanceof ApiError || e instanceof Refused) return { problem: e.message }
    throw e
  }
}

function Answer({ id, only }: { id: string; only: string[] | null }) {
  const query = useAsk(Preview, { id }, { live: (d) => d.rolloutPreview?.state === 'PENDING' })
  const preview = query.data?.rolloutPreview
  if (!preview || preview.state === 'PENDING') return <Working />
  if (preview.state === 'FAILED') return <Untold reason={preview.reason} />
  const shown = preview.environments.filter((e) => !only || only.includes(e.environment.name))
  return shown.map((e) => (
    <details key={e.environment.id} className="committed" open={shown.length === 1}>
      <summary>
        {displayed(e.environment)}: {e.reason ? 'cannot be compared' : summary(e.changes)}
      </summary>
      <Compared compared={e.compared} />
      {e.reason ? <Untold reason={e.reason} /> : <Diffs changes={e.changes} nothing="Everything is in the repository already: nothing is committed." />}
    </details>
  ))
}

/** What the driver lists as different between the manifests that run and those that would. */
function Compared({ compared }: { compared: { reason: string; commit: string; things: { kind: string; action: string; object: string; detail: string }[] } | null }) {
  if (!compared) return null
  if (compared.reason) return <p className="faint">The manifests could not be compared: {compared.reason}</p>
  const at = compared.commit ? (
    <p className="faint">
      Compared at <code>{compared.commit}</code>
    </p>
  ) : null
  if (compared.things.length === 0)
    return (
      <>
        <p className="faint">Nothing that runs would change.</p>
        {at}
      </>
    )
  return (
    <>
      <ul className="compared">
        {compared.things.map((t) => (
          <li key={`${t.kind} ${t.object} ${t.detail}`}>
            {t.kind.toLowerCase().replace('_', ' ')}: {t.object} {t.action}
            {t.detail ? ` (${t.detail})` : ''}
          </li>
        ))}
      </ul>
      {at}
    </>
  )
}

function summary(changes: { path: string }[]): string {
  return changes.length === 0 ? 'nothing' : changes.length === 1 ? (changes[0]?.path ?? '') : `${changes.length} files`
}

function Working() {
  return (
    <p className="faint" role="status">
      <Icon name="moving" /> Comparing with what is in the repository…
    </p>
  )
}

function Untold({ reason }: { reason: string }) {
  return (
    <p className="banner wait">
      <Icon name="clock" /> {sentence(reason)}
    </p>
  )
}
