// What the workflow of a rollout printed and had carried out, newest first. The engine keeps it; the journal signals when there is
// more, because everything that a rollout's workflow does appears there.
import { useInfiniteQuery } from '@tanstack/react-query'
import { useEffect } from 'react'
import { Link } from 'react-router'
import { ask } from '../api/client'
import { RolloutRuns, RunLines, type RunLinesData } from '../api/generated'
import { useAsk } from '../api/hooks'
import type { Touched } from '../api/live'
import { absolute, clockTime } from '../logic/time'
import { Chip } from './state'
import { Loading, Waiting } from './page'

type Line = NonNullable<RunLinesData['workflow']>['logs']['nodes'][number]

const mostPages = 5

export function Logs({ rolloutId }: { rolloutId: string }) {
  const runs = useAsk(RolloutRuns, { subject: rolloutId }, { follows: (touched) => touched.rollouts.has(rolloutId) })
  if (!runs.data) return <Waiting query={runs} what="workflow" />
  const run = runs.data.workflows.nodes[0]
  if (!run) return <p className="faint">No workflow has started for this rollout yet.</p>
  return (
    <>
      <p className="faint">
        <Link to={`/workflows/${encodeURIComponent(run.workflowId)}`}>{run.workflowId}</Link> {run.state.toLowerCase().replaceAll('_', ' ')}
        {run.error && `: ${run.error}`}
      </p>
      <Lines workflowId={run.workflowId} rolloutId={rolloutId} />
    </>
  )
}

function Lines({ workflowId, rolloutId }: { workflowId: string; rolloutId: string }) {
  const query = useInfiniteQuery({
    queryKey: ['RunLines', workflowId],
    queryFn: ({ pageParam }) => ask(RunLines, { workflowId, after: pageParam }),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => (last.workflow?.logs.pageInfo.hasNextPage ? last.workflow.logs.pageInfo.endCursor : null),
    meta: { follows: (touched: Touched) => touched.rollouts.has(rolloutId) },
  })
  const { data, hasNextPage, isFetching, fetchNextPage } = query
  const pages = data?.pages.length ?? 0
  const more = hasNextPage && pages < mostPages
  useEffect(() => {
    if (more && !isFetching) void fetchNextPage()
  }, [more, isFetching, fetchNextPage])
  if (!data) return query.error ? <Waiting query={query} what="log" /> : <Loading what="log" />
  const lines = data.pages.flatMap((p) => p.workflow?.logs.nodes ?? [])
  const waits = data.pages[0]?.workflow?.waitingFor ?? []
  return (
    <>
      {waits.length > 0 && <p className="faint">Waits for {waits.join('; ')}.</p>}
      {hasNextPage && !more && <p className="faint">These are the first {lines.length} lines; the workflow’s own page has all of them.</p>}
      <ol tabIndex={0} aria-label="Workflow log, newest first">
        {lines.map((l) => <LogLine key={`${l.branch} ${l.sequence}`} line={l} />).reverse()}
      </ol>
    </>
  )
}

function LogLine({ line }: { line: Line }) {
  return (
    <li className="entry">
      <time dateTime={line.recordedAt} title={absolute(line.recordedAt)}>
        {clockTime(line.recordedAt)}
      </time>
      <div>
        <p>
          <strong>{line.kind}</strong> {line.name} {line.code && <Chip tone="bad" icon="failed" word={line.code} />}
        </p>
        {line.text && <p className="faint mono brief" title={line.text}>{line.text}</p>}
        {(line.truncated || line.redacted) && <p className="faint">{[line.truncated && 'shortened', line.redacted && 'something like a secret was replaced'].filter(Boolean).join(', ')}</p>}
      </div>
    </li>
  )
}
