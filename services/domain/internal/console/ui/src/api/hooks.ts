// Queries and mutations of pages. State changes are reported by the journal: a query names the rows that concern it, and is repeated
// for them, at most twice a second however much happens. What the journal does not report (readiness, health, who can be
// reached) is queried every fifteen seconds, every two while it is about to change, and when the page becomes visible again.
// What has not changed keeps its identity, so nothing moves under the cursor.
import { keepPreviousData, type Query, QueryCache, QueryClient, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect, useRef, useState } from 'react'
import { ApiError, ask } from './client'
import { MoreJournal, RolloutPage, type JournalRow, type Operation, type RolloutPageData } from './generated'
import { isOver } from '../logic/waiting'
import { Live, nothing, type Touched } from './live'

const lively = 2_000
const calm = 15_000
const beat = 500

type Follows = (touched: Touched, data: unknown) => boolean

/** When an answer says that the session has ended, the page asks who is signed in: Gatekeeper then asks to sign in, on the same page. */
export function newQueryClient(): QueryClient {
  const noticed = (error: Error) => {
    const wasKnown = client.getQueryCache().findAll({ queryKey: ['Viewer'] }).some((viewer) => viewer.state.data !== undefined)
    if (wasKnown && error instanceof ApiError && error.kind === 'signed-out') void client.invalidateQueries({ queryKey: ['Viewer'] })
  }
  const client = new QueryClient({
    queryCache: new QueryCache({ onError: (error, query) => query.queryKey[0] !== 'Viewer' && noticed(error) }),
    defaultOptions: {
      queries: {
        // Nobody is signed in: asking again does not help. Everything else may be over soon.
        retry: (count, error) => error instanceof ApiError && error.kind === 'offline' && count < 2,
        retryDelay: (attempt) => Math.min(1000 * 2 ** attempt, 8000),
        refetchOnWindowFocus: true,
        refetchOnReconnect: true,
        networkMode: 'always',
      },
      mutations: { networkMode: 'always' },
    },
  })
  return client
}

interface Options<Data> {
  /** Whether a check is running, so that something which the journal does not report will change soon. */
  live?: (data: Data) => boolean
  /** Whether rows of the journal concern it. */
  follows?: (touched: Touched, data: Data) => boolean
  /** It never changes. */
  once?: boolean
  enabled?: boolean
}

export function useAsk<Data, Variables>(operation: Operation<Data, Variables>, variables: Variables, options: Options<Data> = {}) {
  const { live, follows, once } = options
  return useQuery({
    queryKey: [operation.name, variables],
    queryFn: () => ask(operation, variables),
    placeholderData: keepPreviousData,
    enabled: options.enabled ?? true,
    staleTime: once ? Infinity : 0,
    meta: { follows: follows && ((touched: Touched, data: unknown) => data !== undefined && follows(touched, data as Data)) },
    refetchInterval: once ? false : (query) => (query.state.data && live?.(query.state.data) ? lively : calm),
  })
}

export const always = () => true

type JournalPage = { after: string | null; rows: JournalRow[] }

/** A rollout and its journal, oldest first, which is kept by page. */
export type LiveRollout = { rollout: NonNullable<RolloutPageData['rollout']>; journal: JournalRow[]; pages: JournalPage[] }

const mostPages = 100

/**
 * A rollout with its whole journal. What is known of the journal stays, but for its last two pages: rows are only ever added, and what
 * is added now is not older than the last 200. So a refresh costs the same however long the journal is.
 */
async function wholeRollout(id: string, known: JournalPage[]): Promise<LiveRollout | null> {
  const kept = known.slice(0, -2)
  let after = known.at(-2)?.after ?? known.at(-1)?.after ?? null
  const { rollout } = await ask(RolloutPage, { id, after })
  if (!rollout) return null
  const pages = [...kept, { after, rows: rollout.journal.nodes }]
  let { hasNextPage, endCursor } = rollout.journal.pageInfo
  while (hasNextPage && endCursor && pages.length < mostPages) {
    after = endCursor
    const more = await ask(MoreJournal, { id, after })
    if (!more.rollout) break
    pages.push({ after, rows: more.rollout.journal.nodes })
    ;({ hasNextPage, endCursor } = more.rollout.journal.pageInfo)
  }
  return { rollout, journal: pages.flatMap((p) => p.rows), pages }
}

/** A rollback is a rollout of its own: one that has ended learns of it by its application. */
function mayBeRolledBack(touched: Touched, live: LiveRollout | null | undefined): boolean {
  return Boolean(live && isOver(live.rollout.state) && touched.applications.has(live.rollout.application.id))
}

export function useRollout(id: string) {
  const client = useQueryClient()
  const queryKey = ['RolloutPage', id]
  return useQuery({
    queryKey,
    queryFn: () => wholeRollout(id, client.getQueryData<LiveRollout | null>(queryKey)?.pages ?? []),
    meta: { follows: (touched: Touched, data: unknown) => touched.rollouts.has(id) || mayBeRolledBack(touched, data as LiveRollout | null | undefined) },
    refetchInterval: calm,
  })
}

/**
 * The journal's stream, from a cursor on, for as long as a person is signed in. Queries that follow it are repeated. Without
 * a cursor it waits for one; an empty one is requested again.
 */
export function useLive(organization: string, cursor: string | undefined): Live | null {
  const client = useQueryClient()
  const [live, setLive] = useState<Live | null>(null)
  // Where the stream begins counts once: afterwards it has a cursor of its own.
  const beginning = useRef<string | undefined>(undefined)
  beginning.current ??= cursor
  const known = beginning.current !== undefined
  useEffect(() => {
    if (!known) return
    const signedOut = () => void client.invalidateQueries({ queryKey: ['Viewer'] })
    const stream = new Live(organization, beginning.current ?? '', signedOut)
    const stop = stream.onRows(inBeats((touched) => refresh(client, touched)))
    setLive(stream)
    return () => {
      stop()
      stream.stop()
      setLive(null)
    }
  }, [client, organization, known])
  return live
}

function refresh(client: QueryClient, touched: Touched): Promise<void> {
  const concerned = (query: Query) => touched.all || ((query.meta?.follows as Follows | undefined)?.(touched, query.state.data) ?? false)
  return client.invalidateQueries({ predicate: concerned })
}

/** Gathers what is touched while the last refresh is under way, and for half a second at least. */
function inBeats(act: (touched: Touched) => Promise<void>): (touched: Touched) => void {
  let gathered: Touched | null = null
  let busy = false
  const run = async () => {
    busy = true
    while (gathered) {
      const now: Touched = gathered
      gathered = null
      await Promise.all([act(now).catch(() => undefined), new Promise((resolve) => setTimeout(resolve, beat))])
    }
    busy = false
  }
  return (touched) => {
    gathered ??= nothing()
    for (const id of touched.rollouts) gathered.rollouts.add(id)
    for (const id of touched.applications) gathered.applications.add(id)
    gathered.all ||= touched.all
    if (!busy) void run()
  }
}

/** A change: afterwards everything that is shown is asked again. */
export function useChange<Input, Payload>(send: (input: Input) => Promise<Payload>, done?: (payload: Payload) => void) {
  const client = useQueryClient()
  return useMutation({
    mutationFn: send,
    onSuccess: (payload) => {
      void client.invalidateQueries()
      done?.(payload)
    },
  })
}
