// What every page has: a title, and what to show while there is nothing to show.
import { useEffect, useRef, type ReactNode } from 'react'
import { Link, useLocation, useSearchParams } from 'react-router'
import { ApiError } from '../api/client'
import { Icon } from './icon'

interface PageProps {
  title: string
  /** In the window's title, where it differs. */
  name?: string
  above?: ReactNode
  beside?: ReactNode
  lead?: ReactNode
  children: ReactNode
}

export function Page({ title, name, above, beside, lead, children }: PageProps) {
  useEffect(() => {
    document.title = `${name ?? title} · Lockstep`
  }, [name, title])
  const heading = useRef<HTMLHeadingElement>(null)
  const arrived = useLocation().key !== 'default' // the first page leaves the focus where the browser puts it
  useEffect(() => {
    // What comes in place of "loading" takes over the focus that went with it.
    if (arrived && document.activeElement === document.body) heading.current?.focus({ preventScroll: true })
  }, [arrived])
  return (
    <>
      <header className="page-head">
        <div>
          {above && <p className="above">{above}</p>}
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
          {lead && <div className="lead">{lead}</div>}
        </div>
        {beside && <div className="actions">{beside}</div>}
      </header>
      {children}
    </>
  )
}

export function Empty({ icon, title, children }: { icon: string; title: string; children: ReactNode }) {
  return (
    <div className="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children}
    </div>
  )
}

export function Loading({ what }: { what: string }) {
  return (
    <div className="loading" role="status">
      <span className="visually-hidden">Loading {what}…</span>
      <div className="bone wide" />
      <div className="bone" />
      <div className="bone" />
    </div>
  )
}

/** A query's page while it has no data: loading, or what went wrong and what to do about it. */
export function Waiting({ query, what }: { query: { error: Error | null; refetch: () => unknown; isFetching: boolean }; what: string }) {
  if (!query.error) return <Loading what={what} />
  const offline = query.error instanceof ApiError && query.error.kind === 'offline'
  return (
    <Empty icon={offline ? 'offline' : 'failed'} title={offline ? 'Lockstep does not answer' : `The ${what} cannot be shown`}>
      <p>{offline ? 'Retrying automatically. Check that the domain service is up and that this machine is on the network.' : query.error.message}</p>
      <p>
        <button type="button" onClick={() => void query.refetch()} disabled={query.isFetching}>
          Try again
        </button>
      </p>
    </Empty>
  )
}

export function NotThere({ what, to, list }: { what: string; to: string; list: string }) {
  return (
    <Page title={`No such ${what}`}>
      <Empty icon="cancelled" title={`There is no such ${what}`}>
        <p>It has another name, or it is in another organization.</p>
        <p>
          <Link to={to}>{list}</Link>
        </p>
      </Empty>
    </Page>
  )
}

/** The next page of a list; its place is in the address, with whatever the address has already. */
export function More({ info, after }: { info: { hasNextPage: boolean; endCursor: string | null }; after: string | null }) {
  const [search] = useSearchParams()
  const at = (cursor: string | null) => {
    const next = new URLSearchParams(search)
    if (cursor) next.set('after', cursor)
    else next.delete('after')
    return `?${next}`
  }
  if (!info.hasNextPage && !after) return null
  return (
    <nav className="more" aria-label="Pages">
      {after && <Link to={at(null)}>First page</Link>}
      {info.hasNextPage && info.endCursor && <Link to={at(info.endCursor)}>Next page</Link>}
    </nav>
  )
}
