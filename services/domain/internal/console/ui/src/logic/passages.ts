// The passages of a rollout, read off its journal: which were requested, when each was granted, and what satisfied it (D46).
import type { JournalRow } from '../api/generated'
import { span } from './time'

export interface Passage {
  gateId: string
  /** "Into staging", "Beyond 50 % in staging", or the name of a step between environments. */
  title: string
  /** Null where it was granted without having to wait. */
  requestedAt: string | null
  /** Null while it is not granted. */
  grantedAt: string | null
  /** What satisfied each condition, and what was left out: one sentence each. */
  grounds: string[]
}

/** What the journal needs to say of a rollout. */
interface Course {
  id: string
  state: string
  environments: Array<{ environment: { name: string } }>
}

function title(gateId: string, environments: Set<string>): string {
  if (environments.has(gateId)) return `Into ${gateId}`
  const [, name, weight] = /^(.+)\/(\d+)$/.exec(gateId) ?? []
  return name && weight && environments.has(name) ? `Beyond ${weight} % in ${name}` : `Past “${gateId}”`
}

/** Who has a name in the journal, by what the server calls a member without the name: "user 3". */
function namesIn(rows: JournalRow[]): Map<string, string> {
  return new Map(rows.flatMap((r) => (r.principal && r.principalId ? [[`${r.principalType} ${r.principalId}`, r.principal.name] as const] : [])))
}

/** The server's sentence, condition by condition, with people's names and times as people say them. */
function grounds(reason: string | null, names: Map<string, string>): string[] {
  return (reason ?? '').split('; ').flatMap((part) =>
    part === ''
      ? []
      : [
          part
            .replaceAll(/\b(?:user|agent) \d+\b/g, (who) => names.get(who) ?? who)
            .replace(/^soak times of (\d+) seconds in all are omitted$/, (_, seconds: string) => `soak times of ${span(Number(seconds) * 1000)} in all are omitted`),
        ],
  )
}

/** Passages in the order in which they were requested or granted first; of one that was requested again, as after an abort, the last time. */
export function passages(rollout: Course, journal: JournalRow[]): Passage[] {
  const environments = new Set(rollout.environments.map((e) => e.environment.name))
  const names = namesIn(journal)
  const found = new Map<string, Passage>()
  for (const row of journal) {
    if (row.subject !== rollout.id || !row.gateId) continue
    const before = found.get(row.gateId)
    const passage = { gateId: row.gateId, title: title(row.gateId, environments), requestedAt: before?.requestedAt ?? null, grantedAt: null, grounds: [] }
    if (row.event === 'request_passage') found.set(row.gateId, { ...passage, requestedAt: row.createdAt })
    // Rows of earlier releases say that a gate was passed, but not why.
    if (row.event === 'pass_gate') found.set(row.gateId, { ...passage, grantedAt: row.createdAt, grounds: grounds(row.reason, names) })
  }
  return [...found.values()]
}

/** Whether it says more than that nothing was in the way. */
export function notable(passage: Passage): boolean {
  return passage.grantedAt === null || passage.grounds.some((g) => !/^(no approval required|nothing was asked)$/.test(g))
}

const marked = /^breach: (its program reported .*, but the passage ".*" was never granted)$/

/** That the rollout failed because of a report from beyond a passage that was not granted: what was reported; null for no breach. */
export function breach(rollout: Course, journal: JournalRow[]): string | null {
  const row = journal.findLast((r) => r.subject === rollout.id && r.event === 'fail')
  return marked.exec(row?.reason ?? '')?.[1] ?? null
}
