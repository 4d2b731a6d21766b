// Runs of the engine: which ones a list asks for, and how what a program reports reads.
import type { WorkflowFilter } from '../api/generated'

/** How far back a list goes, by its word in the address, in hours. */
export const spans: Array<[word: string, label: string, hours: number]> = [
  ['hour', 'the last hour', 1],
  ['day', 'the last 24 hours', 24],
  ['week', 'the last 7 days', 168],
]

/** What the address says of the filter; each has its name there. */
export const filterNames = ['q', 'since', 'label', 'status'] as const

/** A value of set_status, which is JSON text, as people read it. */
export function statusText(value: string): string {
  try {
    const parsed: unknown = JSON.parse(value)
    return typeof parsed === 'string' ? parsed : value
  } catch {
    return value
  }
}

/** What a person types as the value of set_status, as JSON text: true, false, a number or text in quotes as it is, anything else as a string. */
export function statusValue(typed: string): string {
  return /^(true|false|-?\d+(\.\d+)?|".*")$/.test(typed) ? typed : JSON.stringify(typed)
}

function pair(text: string): { key: string; value: string } | null {
  const at = text.indexOf('=')
  return at > 0 ? { key: text.slice(0, at).trim(), value: text.slice(at + 1).trim() } : null
}

/** The filter that an address means; null for none. Half-typed pairs ask nothing. A time is one of whole minutes, so that a list asked for again is the same. */
export function runFilterOf(search: URLSearchParams, now: number): WorkflowFilter | null {
  const filter: WorkflowFilter = {}
  const text = search.get('q')?.trim()
  const hours = spans.find(([word]) => word === search.get('since'))?.[2]
  const label = pair(search.get('label') ?? '')
  const status = pair(search.get('status') ?? '')
  if (text) filter.idContains = text
  if (hours) filter.startedAfter = new Date(Math.floor(now / 60_000) * 60_000 - hours * 3_600_000).toISOString()
  if (label) filter.labels = [label]
  if (status) filter.status = [{ key: status.key, value: statusValue(status.value) }]
  return Object.keys(filter).length > 0 ? filter : null
}

export function countText({ count, atLeast }: { count: number; atLeast: boolean }): string {
  return `${atLeast ? 'At least ' : ''}${count.toLocaleString('en')} ${count === 1 ? 'workflow' : 'workflows'}`
}
