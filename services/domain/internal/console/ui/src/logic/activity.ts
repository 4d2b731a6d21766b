// Who did what: what the filters in the address ask for, what a change of a control changed, and where its subject is shown.
import type { ActivityData, AuditFilter } from '../api/generated'

export type Entry = ActivityData['audit']['nodes'][number]

/** The filters as the address and `lockstep audit` name them. */
export const filterNames = ['who', 'action', 'application', 'environment', 'since', 'until'] as const
export type FilterName = (typeof filterNames)[number]

/** What is asked for; problem says which part of the address cannot be read. */
export interface Asked {
  filter: AuditFilter
  problem: string
}

/** A day is from its midnight on, here; null for what is no time. */
export function instant(text: string): string | null {
  const at = new Date(/^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00:00` : text)
  return Number.isNaN(at.getTime()) ? null : at.toISOString()
}

export function asked(search: URLSearchParams): Asked {
  const filter: AuditFilter = {}
  const text = (name: FilterName) => (search.get(name) ?? '').trim()
  if (text('who')) filter.principal = text('who')
  if (text('action')) filter.action = text('action')
  if (text('application')) filter.application = text('application')
  if (text('environment')) filter.environment = text('environment')
  for (const name of ['since', 'until'] as const) {
    if (!text(name)) continue
    const at = instant(text(name))
    if (at === null) return { filter, problem: `The address has “${name}=${text(name)}”; expected a day such as 2026-11-23.` }
    filter[name] = at
  }
  return { filter, problem: '' }
}

/** One field of a control before and after; null where it was not there. */
export interface FieldChange {
  path: string
  before: string | null
  after: string | null
}

function flatten(value: unknown, path: string, into: Map<string, string>) {
  if (value === null || typeof value !== 'object') {
    if (path !== '' || value !== null) into.set(path, typeof value === 'string' ? value : String(value))
    return
  }
  const parts = Object.entries(value)
  if (parts.length === 0 && path !== '') into.set(path, Array.isArray(value) ? '[]' : '{}')
  for (const [key, inner] of parts) flatten(inner, path ? `${path}.${key}` : key, into)
}

/** The fields that differ, in the order of the later control and then those that went: what stayed is left out. */
export function fieldChanges(before: unknown, after: unknown): FieldChange[] {
  const was = new Map<string, string>()
  const is = new Map<string, string>()
  flatten(before ?? null, '', was)
  flatten(after ?? null, '', is)
  const changes: FieldChange[] = []
  for (const [path, value] of is) {
    if (was.get(path) !== value) changes.push({ path, before: was.get(path) ?? null, after: value })
  }
  for (const [path, value] of was) {
    if (!is.has(path)) changes.push({ path, before: value, after: null })
  }
  return changes
}

/** "setRollbackPolicy" and "break_glass" as people say them: "Set rollback policy", "Break glass". */
export function actionWords(action: string): string {
  const words = action
    .replace(/([a-z0-9])([A-Z])/g, '$1 $2')
    .replaceAll('_', ' ')
    .toLowerCase()
  return words.charAt(0).toUpperCase() + words.slice(1)
}

const pages: Record<string, (entry: Entry, id: string) => string | null> = {
  rollout: (_, id) => `/rollouts/${id}`,
  application: (e) => (e.application ? `/applications/${encodeURIComponent(e.application.name)}` : null),
  applicationenvironment: (e) => (e.application ? `/applications/${encodeURIComponent(e.application.name)}` : null),
  environment: (e) => (e.environment ? `/environments/${encodeURIComponent(e.environment.name)}` : null),
  flowdefinition: (e) => (e.application ? `/applications/${encodeURIComponent(e.application.name)}/pipeline` : null),
  artifactsource: (_, id) => `/sources/${id}`,
  versionset: (e) => (e.application ? `/applications/${encodeURIComponent(e.application.name)}/sets` : null),
  agent: () => '/agents',
  agentkey: () => '/agents',
  member: () => '/access',
  group: () => '/access?show=groups',
  grant: () => '/access?show=grants',
  proposedchange: () => '/changes?show=all',
}

/** The page of what an entry is about; null where there is none. */
export function subjectPage(entry: Entry): string | null {
  if (entry.subject === null) return /workflow/i.test(entry.action) && entry.subjectName ? `/workflows/${encodeURIComponent(entry.subjectName)}` : null
  return pages[entry.subject.replace(/_\d+$/, '')]?.(entry, entry.subject) ?? null
}

/** The name of what an entry is about, or its identifier. */
export function subjectWords(entry: Entry): string {
  return entry.subjectName || (entry.subject ?? 'the organization')
}
