// Queries and changes of pages. Live means: asked again every two seconds while something moves, every fifteen otherwise, and
// at once when the page comes back to the front. What has not changed keeps its identity, so nothing moves under the cursor.
import { keepPreviousData, QueryClient, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { ApiError, ask } from './client'
import { MoreJournal, RolloutPage, type JournalRow, type Operation, type RolloutPageData } from './generated'

const lively = 2_000
const calm = 15_000

export function newQueryClient(): QueryClient {
  return new QueryClient({
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
}

export function useAsk<Data, Variables>(operation: Operation<Data, Variables>, variables: Variables, options: { live?: (data: Data) => boolean; once?: boolean; enabled?: boolean } = {}) {
  return useQuery({
    queryKey: [operation.name, variables],
    queryFn: () => ask(operation, variables),
    placeholderData: keepPreviousData,
    enabled: options.enabled ?? true,
    staleTime: options.once ? Infinity : 0,
    refetchInterval: options.once ? false : (query) => (query.state.data && options.live?.(query.state.data) ? lively : calm),
  })
}

export type LiveRollout = { rollout: NonNullable<RolloutPageData['rollout']>; journal: JournalRow[] }

const mostPages = 20

/** A rollout with its whole journal, page by page. */
async function wholeRollout(id: string): Promise<LiveRollout | null> {
  const { rollout } = await ask(RolloutPage, { id })
  if (!rollout) return null
  const journal = [...rollout.journal.nodes]
  let { hasNextPage, endCursor } = rollout.journal.pageInfo
  for (let page = 0; hasNextPage && endCursor && page < mostPages; page++) {
    const more = await ask(MoreJournal, { id, after: endCursor })
    if (!more.rollout) break
    journal.push(...more.rollout.journal.nodes)
    ;({ hasNextPage, endCursor } = more.rollout.journal.pageInfo)
  }
  return { rollout, journal }
}

export function useRollout(id: string) {
  return useQuery({
    queryKey: ['RolloutPage', id],
    queryFn: () => wholeRollout(id),
    refetchInterval: (query) => (['COMPLETED', 'FAILED', 'CANCELLED'].includes(query.state.data?.rollout.state ?? '') ? calm : lively),
  })
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
