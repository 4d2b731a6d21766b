// Changes as they happen: the journal of the organization over one stream for all tabs of this browser (browsers allow six
// connections to a server, and a stream would hold one for each tab). The tab that has the lock reads the stream and forwards it to
// the others; when it is closed the next one continues from the last cursor. After sleep, a lost network or a restart of the server
// it continues from there too, so that nothing is missed and nothing has to be loaded again.
import { ask, hasSeen, headers, positionHeader, sees } from './client'
import { Follow, JournalCursor, type FollowData } from './generated'
import { serverEvents } from './sse'

/** What rows of the journal were about, by identifier; all says that anything may have changed. */
export interface Touched {
  rollouts: Set<string>
  applications: Set<string>
  all: boolean
}

/** Away: nobody answers, since then. */
export type LiveState = { at: 'beginning' | 'live' } | { at: 'away'; since: number }

type Row = { cursor: string; rollout: string; application: string }
type Word =
  | { kind: 'rows'; rows: Row[]; position?: string | undefined }
  | { kind: 'all'; position: string }
  | { kind: 'state'; state: LiveState }
  | { kind: 'wake' }
  | { kind: 'hello' }

/** No word for so long, not even a heartbeat (one every 15 s), means that nobody is there any more: after sleep, for example. */
const silence = 40_000
const watch = 5_000
const shortest = 250
const longest = 5_000
/** How long a stream may be down before the page says so: a restart takes less. */
const grace = 2_500

export function nothing(): Touched {
  return { rollouts: new Set(), applications: new Set(), all: false }
}

/** Follows the journal until stop() is called. */
export class Live {
  private cursor: string
  private state: LiveState = { at: 'beginning' }
  private readonly stopped = new AbortController()
  private readonly channel: BroadcastChannel
  private connection: AbortController | null = null
  private leads = false
  private wake: () => void = () => undefined
  private readonly rowListeners = new Set<(touched: Touched) => void>()
  private readonly stateListeners = new Set<() => void>()
  private readonly signedOut: () => void

  constructor(organization: string, cursor: string, signedOut: () => void) {
    this.cursor = cursor
    this.signedOut = signedOut
    this.channel = new BroadcastChannel(`lockstep-live-${organization}`)
    this.channel.onmessage = (m: MessageEvent<Word>) => this.hear(m.data)
    this.channel.postMessage({ kind: 'hello' } satisfies Word)
    const signal = this.stopped.signal
    for (const name of ['online', 'focus', 'pageshow']) window.addEventListener(name, () => this.again(), { signal })
    // A network that is gone may take minutes to break a stream by itself.
    window.addEventListener('offline', () => this.connection?.abort(), { signal })
    document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && this.again(), { signal })
    navigator.locks.request(`lockstep-live-${organization}`, { signal }, () => this.lead()).catch(() => undefined) // stopped before it had the lock
  }

  stop(): void {
    this.stopped.abort()
    this.connection?.abort()
    this.wake()
    this.channel.close()
  }

  onRows(listener: (touched: Touched) => void): () => void {
    this.rowListeners.add(listener)
    return () => this.rowListeners.delete(listener)
  }

  readonly onState = (listener: () => void): (() => void) => {
    this.stateListeners.add(listener)
    return () => this.stateListeners.delete(listener)
  }

  readonly now = (): LiveState => this.state

  /** Tries at once, in place of the next time that is due. */
  readonly again = (): void => {
    if (this.state.at !== 'away') return
    if (this.leads) this.wake()
    else this.channel.postMessage({ kind: 'wake' } satisfies Word)
  }

  private hear(word: Word): void {
    switch (word.kind) {
      case 'rows':
        sees(word.position)
        return this.take(word.rows)
      case 'all':
        sees(word.position)
        return this.notify({ ...nothing(), all: true })
      case 'state':
        return this.become(word.state)
      case 'wake':
        return this.leads ? this.wake() : undefined
      case 'hello':
        if (this.leads) this.channel.postMessage({ kind: 'state', state: this.state } satisfies Word)
    }
  }

  private say(word: Word): void {
    if (this.stopped.signal.aborted) return
    this.channel.postMessage(word)
    this.hear(word)
  }

  private become(state: LiveState): void {
    if (state.at === this.state.at) return
    this.state = state
    for (const l of this.stateListeners) l()
  }

  private take(rows: Row[]): void {
    const touched = nothing()
    for (const r of rows) {
      this.cursor = r.cursor
      touched.rollouts.add(r.rollout)
      touched.applications.add(r.application)
    }
    this.notify(touched)
  }

  private notify(touched: Touched): void {
    for (const l of this.rowListeners) l(touched)
  }

  /** Reads the stream, again and again. */
  private async lead(): Promise<void> {
    this.leads = true
    let pause = shortest
    let late: ReturnType<typeof setTimeout> | undefined
    while (!this.stopped.signal.aborted) {
      const end = await this.connect(() => {
        pause = shortest
        clearTimeout(late)
        late = undefined
        this.say({ kind: 'state', state: { at: 'live' } })
      })
      if (end === 'refused') break
      if (end === 'complete') continue
      const since = Date.now()
      late ??= setTimeout(() => this.say({ kind: 'state', state: { at: 'away', since } }), grace)
      await new Promise<void>((resolve) => {
        this.wake = resolve
        setTimeout(resolve, pause * (0.75 + Math.random() / 2))
      })
      pause = Math.min(pause * 2, longest)
    }
    clearTimeout(late)
  }

  /** One stream, until it ends. */
  private async connect(open: () => void): Promise<'complete' | 'broken' | 'refused'> {
    const connection = new AbortController()
    this.connection = connection
    let last = Date.now()
    const watchdog = setInterval(() => Date.now() - last > silence && connection.abort(), watch)
    try {
      if (this.cursor === '') await this.beginAnew()
      const body = JSON.stringify({ query: Follow.text, operationName: Follow.name, variables: { after: this.cursor } })
      const response = await fetch('/graphql', {
        method: 'POST', body, headers: { ...headers, Accept: 'text/event-stream', [positionHeader]: 'now' }, credentials: 'same-origin', cache: 'no-store', signal: connection.signal,
      })
      if (response.status === 401) return this.refused()
      if (!response.ok || !response.body || !response.headers.get('Content-Type')?.startsWith('text/event-stream')) return 'broken'
      open()
      for await (const { event, data } of serverEvents(response.body, () => (last = Date.now()))) {
        if (event === 'complete') return 'complete'
        if (event === 'next' && !(await this.read(data))) return 'broken'
      }
      return 'broken'
    } catch {
      return 'broken'
    } finally {
      clearInterval(watchdog)
      connection.abort()
    }
  }

  private refused(): 'refused' {
    this.signedOut()
    return 'refused'
  }

  /** A result. A cursor that is refused is that of another database: then one begins anew. */
  private async read(data: string): Promise<boolean> {
    const { data: row, errors, extensions } = JSON.parse(data) as {
      data?: FollowData | null
      errors?: Array<{ extensions?: { code?: string } }>
      extensions?: { position?: string }
    }
    if (errors?.length || !row) {
      if (errors?.[0]?.extensions?.code === 'INVALID') await this.beginAnew()
      return false
    }
    const { cursor, rollout } = row.journal
    this.say({ kind: 'rows', rows: [{ cursor, rollout: rollout.id, application: rollout.application.id }], position: extensions?.position })
    return true
  }

  /** From now on; what happened meanwhile is not known, so anything may have. */
  private async beginAnew(): Promise<void> {
    const { journalCursor } = await ask(JournalCursor, {})
    this.cursor = journalCursor
    this.say({ kind: 'all', position: hasSeen() })
  }
}
