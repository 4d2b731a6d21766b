// Taking an application or an environment out of use, and into use again: nothing is ever deleted.
import { useState, type ReactNode } from 'react'
import type { ArchivingFields } from '../api/generated'
import { ability, type Ability } from '../logic/ability'
import { ActButton } from './act'
import { Confirm } from './confirm'
import { Icon } from './icon'
import { Ago } from './time'

interface ArchiveProps {
  kind: 'application' | 'environment'
  name: string
  viewerCan: Ability[]
  /** What it means. */
  means: ReactNode
  send: (reason: string) => Promise<unknown>
}

/** The last part of a page: nobody presses it by the way. */
export function Archive({ kind, name, viewerCan, means, send }: ArchiveProps) {
  const [asking, setAsking] = useState(false)
  return (
    <section className="card" aria-labelledby="archive">
      <h2 id="archive">Archive</h2>
      <p className="faint">Takes this {kind} out of use. Nothing in any cluster is touched, its history stays, and it can be restored.</p>
      <p>
        <ActButton ability={ability(viewerCan, kind === 'application' ? 'archiveApplication' : 'archiveEnvironment')} onClick={() => setAsking(true)}>
          Archive {name}
        </ActButton>
      </p>
      {asking && (
        <Confirm title={`Archive ${name}`} submit="Archive" reasoned done={`${name} is archived.`} send={send} onClose={() => setAsking(false)}>
          {means}
        </Confirm>
      )}
    </section>
  )
}

interface ArchivedProps extends ArchiveProps {
  since: string
  archivings: ArchivingFields[]
}

/** What is archived says so first: by whom, why, and how it comes back. */
export function Archived({ kind, name, viewerCan, means, send, since, archivings }: ArchivedProps) {
  const [asking, setAsking] = useState(false)
  const last = archivings.find((one) => one.archived)
  return (
    <section className="card why" aria-labelledby="archived">
      <h2 id="archived">
        <Icon name="cancelled" /> Archived
      </h2>
      <p>
        {last?.principal && <bdi>{last.principal.name}</bdi>} {last?.principal ? 'took it out of use' : 'Out of use since'} <Ago at={since} />. Nothing new is made of it.
      </p>
      {last?.reason && (
        <p className="faint" dir="auto">
          {last.reason}
        </p>
      )}
      <p>
        <ActButton className="primary" ability={ability(viewerCan, kind === 'application' ? 'restoreApplication' : 'restoreEnvironment')} onClick={() => setAsking(true)}>
          Restore {name}
        </ActButton>
      </p>
      {asking && (
        <Confirm title={`Restore ${name}`} submit="Restore" tone="primary" reasoned done={`${name} is in use again.`} send={send} onClose={() => setAsking(false)}>
          {means}
        </Confirm>
      )}
    </section>
  )
}
