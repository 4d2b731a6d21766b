// What changes between two version sets, as a table; brief leaves out what stays the same.
import type { SetFields } from '../api/generated'
import { difference, shortDigest } from '../logic/difference'
import { useId } from 'react'
import { Link } from 'react-router'
import { useFirst } from './fold'
import { Icon } from './icon'
import { Chip } from './state'
import { Ago } from './time'

const kinds = {
  changed: { tone: 'info', icon: 'arrow', word: 'Changed' },
  added: { tone: 'good', icon: 'plus', word: 'New' },
  removed: { tone: 'bad', icon: 'cancelled', word: 'Gone' },
  same: { tone: 'quiet', icon: 'same', word: 'Same' },
} as const

export function Changes({ before, after, brief }: { before: SetFields | null; after: SetFields; brief?: boolean }) {
  const all = difference(before, after)
  const rows = brief ? all.filter((c) => c.kind !== 'same') : all
  const [shown, more] = useFirst(rows, 20, 'services')
  if (rows.length === 0) return <p className="faint">The same versions of everything.</p>
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="What changes">
      <table className="changes">
        <thead>
          <tr>
            <th scope="col">Service</th>
            <th scope="col">{before ? before.name : 'Before'}</th>
            <th scope="col">{after.name}</th>
            <th scope="col">Change</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((c) => (
            <tr key={c.key}>
              <th scope="row">
                {c.service}
                {!brief && <div className="faint mono">{c.source}</div>}
              </th>
              <td>
                <VersionName version={c.before} />
              </td>
              <td>
                <VersionName version={c.after} />
              </td>
              <td>
                <Chip {...kinds[c.kind]} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {more}
    </div>
  )
}

interface VersionNameProps {
  version: { id?: string; name: string; digest: string; digestSeen?: boolean | null; deletedAt?: string | null } | null
  /** Its name leads to its page. */
  linked?: boolean
}

export function VersionName({ version, linked }: VersionNameProps) {
  if (!version) return <span className="faint">none</span>
  return (
    <>
      {linked && version.id ? <Link to={`/versions/${version.id}`}>{version.name}</Link> : version.name}{' '}
      <code className="faint" title={version.digest}>
        {shortDigest(version.digest)}
      </code>
      {version.digestSeen === false && (
        <>
          {' '}
          <DigestNotSeen />
        </>
      )}
      {version.deletedAt && (
        <>
          {' '}
          <ImageDeleted at={version.deletedAt} />
        </>
      )}
    </>
  )
}

/** A version that was reported but that its registry does not have; hover and focus show what that means. */
export function DigestNotSeen() {
  const id = useId()
  return (
    <span className="act unseen">
      <span className="chip wait" role="note" tabIndex={0} aria-describedby={id}>
        <Icon name="degraded" />
        Digest not seen at the registry
      </span>
      <span role="tooltip" id={id} className="why-not">
        This version was reported, but its registry does not have this digest: the image may have been deleted, not pushed yet, or reported wrongly. It does not become the newest version until it has been seen.
      </span>
    </span>
  )
}

/** A version whose image, or last tag, its registry reported as deleted. */
export function ImageDeleted({ at }: { at: string }) {
  const id = useId()
  return (
    <span className="act unseen">
      <span className="chip wait" role="note" tabIndex={0} aria-describedby={id}>
        <Icon name="degraded" />
        Image deleted
      </span>
      <span role="tooltip" id={id} className="why-not">
        The registry reported <Ago at={at} /> that this image, or the last tag that named it, was deleted. The version can still be rolled out, but where the image is not kept elsewhere, it cannot be started.
      </span>
    </span>
  )
}
