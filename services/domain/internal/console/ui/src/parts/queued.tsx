// What is pending in the queues of applications: why, since when and, while drivers compare its manifests, until when. It can be taken out.
import { useState } from 'react'
import { Link } from 'react-router'
import { accepted, ask } from '../api/client'
import { CancelQueuedRollout, type QueuedFields } from '../api/generated'
import { ability } from '../logic/ability'
import { ActButton } from './act'
import { Confirm } from './confirm'
import { sentence } from './form'
import { Chip } from './state'
import { Ago, Due } from './time'

/** Rollouts that wait in queues, one each line. */
export function Queued({ all, application, changed }: { all: QueuedFields[]; application: boolean; changed: () => unknown }) {
  const [cancelled, setCancelled] = useState<QueuedFields | null>(null)
  return (
    <>
      {all.map((q) => (
        <p key={q.id} className="line">
          <span>
            <Chip tone="wait" icon="pending" word="Pending" /> {application && <><Link to={`/applications/${q.application.name}`}>{q.application.name}</Link>: </>}
            <strong>{q.versionSet.name}</strong>, asked for <Ago at={q.requestedAt} /> by {q.principal?.name ?? q.principalType}. {sentence(q.why)}
            {q.waitsFor === 'COMPARISON' && q.comparesUntil && (
              <>
                {' '}
                Without an answer it begins by its pipeline <Due at={q.comparesUntil} />.
              </>
            )}
            {q.reason && <span className="faint" dir="auto"> {q.reason}</span>}
          </span>
          <ActButton ability={ability(q.viewerCan, 'cancelQueuedRollout')} label={`Cancel the pending rollout of ${q.versionSet.name}`} onClick={() => setCancelled(q)}>
            Cancel
          </ActButton>
        </p>
      ))}
      {cancelled && (
        <Confirm
          title={`Cancel the pending rollout of ${cancelled.versionSet.name}`}
          submit="Cancel the rollout"
          reasoned
          done="The pending rollout is cancelled."
          onClose={() => setCancelled(null)}
          send={async (reason) => {
            accepted((await ask(CancelQueuedRollout, { input: { queuedRolloutId: cancelled.id, reason } })).cancelQueuedRollout)
            await changed()
          }}
        >
          <p>It is taken out of the queue of {cancelled.application.name}, and does not begin. Nothing that runs is changed.</p>
        </Confirm>
      )}
    </>
  )
}

/** Why the latest that waited in the queue has not begun; nothing if it has, or if a rollout was created since. */
export function NotBegun({ last, newest }: { last: QueuedFields | null; newest: string | undefined }) {
  if (!last || !last.endedAt || (last.state !== 'CANCELLED' && last.state !== 'DROPPED')) return null
  if (newest !== undefined && Date.parse(newest) > Date.parse(last.endedAt)) return null
  return (
    <p className="line">
      <span>
        <Chip tone="quiet" icon="cancelled" word={last.state === 'CANCELLED' ? 'Cancelled' : 'Not begun'} /> <strong>{last.versionSet.name}</strong>, which waited in the queue, <Ago at={last.endedAt} />. {sentence(last.why)}
      </span>
    </p>
  )
}
