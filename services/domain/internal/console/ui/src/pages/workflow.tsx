// One run of the engine: what it waits for, what it recorded and printed, and what can be done about it.
import { useInfiniteQuery } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { Link, useParams, useSearchParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { CancelRun, RetryRun, WorkflowHistory, WorkflowLogs, WorkflowPage, type WorkflowHistoryData, type WorkflowLogsData, type WorkflowPageData } from '../api/generated'
import { useAsk } from '../api/hooks'
import { humanise } from '../form/copy'
import { ability } from '../logic/ability'
import { statusText } from '../logic/runs'
import { clockTime } from '../logic/time'
import { ActButton } from '../parts/act'
import { Confirm } from '../parts/confirm'
import { sentence } from '../parts/form'
import { Icon } from '../parts/icon'
import { NotThere, Page, Waiting } from '../parts/page'
import { Ago } from '../parts/time'
import { Timeline } from '../parts/timeline'
import { Runs, RunState, Subject } from './workflows'

type Run = NonNullable<WorkflowPageData['workflow']>

export default function WorkflowDetail() {
  const { id = '' } = useParams()
  const [search] = useSearchParams()
  const query = useAsk(WorkflowPage, { id }, { live: (d) => d.workflow?.state === 'RUNNING' || d.workflow?.state === 'PARKED' })
  if (query.data && !query.data.workflow) return <NotThere what="workflow" to="/workflows" list="All workflows" />
  const run = query.data?.workflow
  if (!run) return <Page title="Workflow"><Waiting query={query} what="workflow" /></Page>
  const tab = search.get('show') === 'history' ? 'history' : search.get('show') === 'timeline' ? 'timeline' : 'log'
  return (
    <Page
      title={run.program ? humanise(run.program) : run.workflowId}
      name={run.workflowId}
      above={<Link to="/workflows">workflows</Link>}
      lead={
        <p className="line">
          <RunState state={run.state} /> <span className="mono wrap">{run.workflowId}</span> <span>for <Subject subject={run.subject} /></span>
          {run.parent && (
            <span>
              child of <Link to={`/workflows/${encodeURIComponent(run.parent)}`}>{run.parent}</Link>
            </span>
          )}
          <span>started <Ago at={run.createdAt} /></span>
          {run.generation > 1 && <span>generation {run.generation}, since step {run.generationSequence}</span>}
          {run.finishedAt && <span>ended <Ago at={run.finishedAt} /></span>}
        </p>
      }
      beside={<Acts run={run} />}
    >
      <div className="stack">
        {run.error && (
          <section className="card why bad" aria-labelledby="error">
            <h2 id="error">Why it {run.state === 'FAILED' ? 'failed' : 'ended'}</h2>
            <p className="wrap">{sentence(run.error)}</p>
          </section>
        )}
        {run.waitingFor.length > 0 && (
          <section className="card why" aria-labelledby="waits">
            <h2 id="waits">What it waits for</h2>
            <ul>
              {run.waitingFor.map((w) => (
                <li key={w}>
                  <Icon name="clock" /> <p>{sentence(w)}</p>
                </li>
              ))}
            </ul>
          </section>
        )}
        {run.status.length > 0 && (
          <section className="card" aria-labelledby="reports">
            <h2 id="reports">What it reports</h2>
            <dl className="config">
              {run.status.map((s) => (
                <div key={s.key}>
                  <dt>{s.key}</dt>
                  <dd className="wrap">{statusText(s.value)}</dd>
                </div>
              ))}
            </dl>
          </section>
        )}
        {run.children.nodes.length > 0 && (
          <section aria-labelledby="children">
            <h2 id="children">What it has started</h2>
            <Runs runs={run.children.nodes} label="Workflows that it has started" />
            {run.children.pageInfo.hasNextPage && (
              <p>
                <Link to={`/workflows?${new URLSearchParams({ label: `lockstep.parent=${run.workflowId}` })}`}>All of them</Link>
              </p>
            )}
          </section>
        )}
        {run.retries.length > 0 && (
          <section className="card" aria-labelledby="retries">
            <h2 id="retries">Retried</h2>
            <ul className="plain">
              {run.retries.map((r) => (
                <li key={r.at}>
                  <Ago at={r.at} />, from step {r.fromSequence}
                  {r.reason && <>: {r.reason}</>}
                  <div className="faint wrap">It had failed: {r.error}</div>
                </li>
              ))}
            </ul>
          </section>
        )}
        <section className="card" aria-label="What it did">
          <nav className="tabs" aria-label="What to show">
            <Link to="?" replace aria-current={tab === 'log' ? 'page' : undefined}>
              Log
            </Link>
            <Link to="?show=timeline" replace aria-current={tab === 'timeline' ? 'page' : undefined}>
              Timeline
            </Link>
            <Link to="?show=history" replace aria-current={tab === 'history' ? 'page' : undefined}>
              History, {run.lastSequence} steps
            </Link>
          </nav>
          {tab === 'log' && <Log id={run.workflowId} seen={run.lastSequence} />}
          {tab === 'timeline' && <Timeline id={run.workflowId} seen={run.lastSequence} live={!run.finishedAt} />}
          {tab === 'history' && <History id={run.workflowId} seen={run.lastSequence} />}
        </section>
        <p className="faint wrap">
          Program <code>{run.programDigest.slice(0, 12)}</code>, engine’s handle <code>{run.workflowRef}</code>
        </p>
      </div>
    </Page>
  )
}

function Acts({ run }: { run: Run }) {
  const [open, setOpen] = useState<'retry' | 'cancel' | null>(null)
  const input = (reason: string) => ({ input: { workflowId: run.workflowId, reason } })
  const close = () => setOpen(null)
  return (
    <span className="buttons">
      <ActButton ability={ability(run.viewerCan, 'retryWorkflow')} onClick={() => setOpen('retry')}>
        Retry from the failed step
      </ActButton>
      <ActButton ability={ability(run.viewerCan, 'cancelWorkflow')} onClick={() => setOpen('cancel')}>
        Cancel workflow
      </ActButton>
      {open === 'retry' && (
        <Confirm title={`Retry ${run.workflowId}`} submit="Retry" tone="primary" reasoned done="Workflow retried" onClose={close} send={async (reason) => accepted((await ask(RetryRun, input(reason))).retryWorkflow)}>
          <p>It continues from the step that failed: earlier steps are kept and not repeated. What it was started for may have ended by now, and stays so.</p>
        </Confirm>
      )}
      {open === 'cancel' && (
        <Confirm title={`Cancel ${run.workflowId}`} submit="Cancel workflow" reasoned done="It was asked to stop." onClose={close} send={async (reason) => accepted((await ask(CancelRun, input(reason))).cancelWorkflow)}>
          <p>It is asked to stop. What it is run for ends with it.</p>
        </Confirm>
      )}
    </span>
  )
}

type Entry = NonNullable<WorkflowHistoryData['workflow']>['history']['nodes'][number]
type Line = NonNullable<WorkflowLogsData['workflow']>['logs']['nodes'][number]
interface Pages<Node> {
  nodes: Node[]
  pageInfo: { hasNextPage: boolean; endCursor: string | null }
}

/** Pages of a list that only grows: the last one is read again when the run has made progress. */
function useGrowing<Node>(key: unknown[], seen: number, read: (after: string | null) => Promise<Pages<Node>>) {
  return useInfiniteQuery({
    queryKey: [...key, seen],
    queryFn: ({ pageParam }) => read(pageParam),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => (last.pageInfo.hasNextPage ? last.pageInfo.endCursor : undefined),
    placeholderData: (before) => before,
  })
}

const page = 100

function Log({ id, seen }: { id: string; seen: number }) {
  const query = useGrowing<Line>(['WorkflowLogs', id], seen, async (after) => (await ask(WorkflowLogs, { id, first: page, after })).workflow?.logs ?? nothing())
  return (
    <Listing query={query} what="log" empty="It has printed nothing, and called nothing.">
      {(lines) => (
        <ol className="log" aria-label="Log, oldest first">
          {lines.map((l, i) => (
            <li key={`${l.sequence}/${i}`} className={l.code ? 'wrong' : undefined}>
              <time dateTime={l.recordedAt}>{clockTime(l.recordedAt)}</time>
              <span className="kind">
                {l.kind} {l.branch > 0 && <span className="faint">branch {l.branch}</span>}
              </span>
              <span className="what">
                {l.name && <strong className="mono">{l.name}</strong>} {l.code && <span className="problem">{l.code}</span>} <span className="mono said">{l.text}</span>
                {l.truncated && <span className="faint"> cut here</span>}
                {l.redacted && <span className="faint"> a secret was replaced</span>}
              </span>
            </li>
          ))}
        </ol>
      )}
    </Listing>
  )
}

function History({ id, seen }: { id: string; seen: number }) {
  const query = useGrowing<Entry>(['WorkflowHistory', id], seen, async (after) => (await ask(WorkflowHistory, { id, first: page, after })).workflow?.history ?? nothing())
  return (
    <Listing query={query} what="history" empty="It has recorded nothing yet.">
      {(entries) => (
        <ol className="log history" aria-label="History, oldest first">
          {entries.map((e) => (
            <li key={e.sequence}>
              <span className="faint">{e.sequence}</span>
              <span className="kind">
                {e.kind} {e.branch > 0 && <span className="faint">branch {e.branch}</span>}
              </span>
              <span className="what">
                <strong className="mono">{e.name}</strong>
                {e.value && e.value !== 'null' && (
                  <details>
                    <summary className="mono">{e.value.length > 80 ? `${e.value.slice(0, 80)}…` : e.value}</summary>
                    <pre tabIndex={0}>{pretty(e.value)}</pre>
                    {e.truncated && <p className="faint">It is longer; the rest is not shown.</p>}
                  </details>
                )}
              </span>
              <time dateTime={e.recordedAt}>{clockTime(e.recordedAt)}</time>
            </li>
          ))}
        </ol>
      )}
    </Listing>
  )
}

function nothing<Node>(): Pages<Node> {
  return { nodes: [], pageInfo: { hasNextPage: false, endCursor: null } }
}

function pretty(value: string): string {
  try {
    return JSON.stringify(JSON.parse(value), null, 2)
  } catch {
    return value
  }
}

interface ListingProps<Node> {
  query: ReturnType<typeof useGrowing<Node>>
  what: string
  empty: string
  children: (nodes: Node[]) => ReactNode
}

function Listing<Node>({ query, what, empty, children }: ListingProps<Node>) {
  if (!query.data) return <Waiting query={query} what={what} />
  const nodes = query.data.pages.flatMap((p) => p.nodes)
  if (nodes.length === 0) return <p className="faint">{empty}</p>
  return (
    <>
      {children(nodes)}
      {query.hasNextPage && (
        <button type="button" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
          {query.isFetchingNextPage ? 'Loading…' : 'Show more'}
        </button>
      )}
    </>
  )
}
