// The GraphQL client: one function. Who asks is in a cookie that no script can read; the header says that it is this page,
// and no form on another site, which asks.
import type { Operation, Problem } from './generated'

/** Offline: nobody answered. SignedOut: nobody is signed in. Failed: the API said what is wrong. */
export type ApiErrorKind = 'offline' | 'signed-out' | 'failed'

export class ApiError extends Error {
  readonly kind: ApiErrorKind
  readonly code: string
  constructor(kind: ApiErrorKind, message: string, code = '') {
    super(message)
    this.kind = kind
    this.code = code
  }
}

/** What every request of this page has. */
export const headers = { 'Content-Type': 'application/json', 'Lockstep-Csrf': '1' }
const patience = 20_000

/** The header with what a request has to include, and with what an answer does include. */
export const positionHeader = 'Lockstep-Position'

// What this page has seen: a position in the database, or 'now' while that is not known. An answer may be read from a copy of the database, but
// from none that lacks it. lost counts how often it became unknown: what was asked before says nothing about it.
let seen = 'now'
let lost = 0

/** Whether a position, such as 16/B374D848, is behind another one. */
function behind(one: string, other: string): boolean {
  const number = (text: string) => {
    const [high = '0', low = '0'] = text.split('/')
    return parseInt(high, 16) * 2 ** 32 + parseInt(low, 16)
  }
  return number(one) > number(other)
}

/** Forgets what was seen: something may have changed whose position is not known. The next request includes everything. */
export function forgets(): void {
  seen = 'now'
  lost++
}

/** Notes what an event or another tab has seen; without a position it is not known. */
export function sees(position: string | undefined): void {
  if (!position?.includes('/')) forgets()
  else if (seen !== 'now' && behind(position, seen)) seen = position
}

/** What the next request has to include. */
export function hasSeen(): string {
  return seen
}

/** Notes what an answer includes to a request that had to include something. */
function answered(position: string | null, had: string, since: number): void {
  if (since !== lost) return
  // Less than was demanded: the database was set back, and what was seen in it means nothing any more.
  if (!position?.includes('/') || (had !== 'now' && behind(had, position))) forgets()
  else if (seen === 'now' || behind(position, seen)) seen = position
}

async function send(path: string, init: RequestInit): Promise<Response> {
  const [had, since] = [seen, lost]
  try {
    const response = await fetch(path, {
      ...init, headers: { ...headers, [positionHeader]: had }, credentials: 'same-origin', signal: AbortSignal.timeout(patience),
    })
    answered(response.headers.get(positionHeader), had, since)
    return response
  } catch {
    forgets() // it may have been carried out
    throw new ApiError('offline', 'Lockstep does not answer.')
  }
}

interface Answer<Data> {
  data?: Data | null
  errors?: Array<{ message: string; extensions?: { code?: string } }>
}

async function read<Data>(response: Response): Promise<Answer<Data>> {
  try {
    return (await response.json()) as Answer<Data>
  } catch {
    throw new ApiError('offline', `Something other than Lockstep answered (status ${response.status}).`)
  }
}

function refuse(response: Response, answer: Answer<unknown>): never {
  const first = answer.errors?.[0]
  const code = first?.extensions?.code ?? ''
  if (response.status === 401) throw new ApiError('signed-out', first?.message ?? 'Nobody is signed in.', code)
  if (code === 'UNAVAILABLE') throw new ApiError('offline', first?.message ?? 'Lockstep is not available.', code)
  throw new ApiError('failed', first?.message ?? `Lockstep answered with status ${response.status}.`, code)
}

export async function ask<Data, Variables>(operation: Operation<Data, Variables>, variables: Variables): Promise<Data> {
  const body = JSON.stringify({ query: operation.text, operationName: operation.name, variables })
  const response = await send('/graphql', { method: 'POST', body })
  const answer = await read<Data>(response)
  if (answer.errors?.length || !answer.data) refuse(response, answer)
  return answer.data as Data
}

export async function signIn(token: string): Promise<void> {
  const response = await send('/session', { method: 'POST', body: JSON.stringify({ token }) })
  if (response.status !== 204) refuse(response, await read(response))
}

/** A way to sign in beside a token: what the button says, and where it leads. */
export interface SignInOption {
  label: string
  path: string
}

export async function signInOptions(): Promise<SignInOption[]> {
  const response = await send('/session', { method: 'GET' })
  return ((await response.json()) as { options: SignInOption[] }).options
}

/** Where a browser signs in to one of the person's organizations: the identity provider confirms again which those are. */
export function signInTo(organization: string): string {
  return `/session/oidc?organization=${encodeURIComponent(organization)}&return=%2F`
}

const organizationKey = 'lockstep-organization'

/** Keeps which organization was chosen, for the next sign-in in this browser; empty where there is no choice. */
export function rememberOrganization(organization: string): void {
  if (organization) localStorage.setItem(organizationKey, organization)
  else localStorage.removeItem(organizationKey)
}

export function rememberedOrganization(): string {
  return localStorage.getItem(organizationKey) ?? ''
}

export async function signOut(): Promise<void> {
  await send('/session', { method: 'DELETE' })
}

/** What was wrong with what was sent, as an answer of a mutation says it. */
export class Refused extends Error {
  readonly problems: Problem[]
  constructor(problems: Problem[]) {
    super(problems.map((p) => p.message).join(' '))
    this.problems = problems
  }
}

/** Makes an error of the problems that a mutation answers. */
export function accepted<Payload extends { errors: Problem[] }>(payload: Payload): Payload {
  if (payload.errors.length > 0) throw new Refused(payload.errors)
  return payload
}
