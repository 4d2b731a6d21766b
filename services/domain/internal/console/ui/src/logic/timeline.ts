// The timeline of a run: where its bars are, in lanes of branches, and their descriptions.
import type { WorkflowTimelineData } from '../api/generated'

export type Timeline = NonNullable<WorkflowTimelineData['workflow']>['timeline']
export type Step = Timeline['steps'][number]

/** What a kind of step is, for its look and its legend. */
export type Look = 'call' | 'wait' | 'child' | 'note' | 'failed'

export const looks: Array<[look: Look, label: string]> = [
  ['call', 'Function'],
  ['wait', 'wait'],
  ['child', 'child'],
  ['note', 'other step'],
  ['failed', 'failed'],
]

const kinds: Record<string, Look> = { run: 'call', poll: 'call', sleep: 'wait', wait: 'wait', receive: 'wait', start: 'child', failed: 'failed', quarantined: 'failed', terminated: 'failed' }

export function lookOf(step: Pick<Step, 'kind' | 'code'>): Look {
  return step.code ? 'failed' : (kinds[step.kind] ?? 'note')
}

export interface Bar {
  /** The place of the step in the timeline. */
  index: number
  /** Hundredths of the width; a bar of no length is a mark. */
  left: number
  width: number
  /** Where it is drawn, as CSS: at its time, or right of those that begin at about the same time, so that it can be pointed at. */
  place: string
  look: Look
  open: boolean
}

export interface Lane {
  branch: number
  /** -1 for none. */
  parent: number
  bars: Bar[]
}

/** Lanes in the order of branches, each under the one that has spawned it as far as that is known, and the time that they cover. The end of a run is in its first lane. */
export function lanesOf(timeline: Timeline, now: number): { lanes: Lane[]; from: number; to: number } {
  const times = timeline.steps.flatMap((s) => [Date.parse(s.beganAt), s.endedAt ? Date.parse(s.endedAt) : now])
  const from = Math.min(...times)
  const to = Math.max(...times, from + 1)
  const at = (time: number) => ((time - from) / (to - from)) * 100
  const lanes = new Map<number, Lane>(timeline.branches.map((b) => [b.branch, { branch: b.branch, parent: b.parent, bars: [] }]))
  timeline.steps.forEach((s, index) => {
    const branch = s.branch < 0 ? (timeline.branches[0]?.branch ?? 0) : s.branch
    if (!lanes.has(branch)) lanes.set(branch, { branch, parent: -1, bars: [] })
    const began = Date.parse(s.beganAt)
    const ended = s.endedAt ? Date.parse(s.endedAt) : to
    const bars = lanes.get(branch)?.bars ?? []
    const left = at(began)
    const width = Math.max(0, at(ended) - left)
    bars.push({ index, left, width, place: `${left}%`, look: lookOf(s), open: !s.endedAt })
  })
  for (const { bars } of lanes.values()) {
    apart(bars.filter((b) => b.width === 0))
    apart(bars.filter((b) => b.width > 0))
  }
  return { lanes: [...lanes.values()].sort((a, b) => a.branch - b.branch), from, to }
}

const gap = 0.5 // rem from one to the next, of those that would cover each other
const narrowest = 4 // hundredths of the width that a gap takes at most
const crowd = 8 // how many of those before one are kept clear of it

/** Moves what would cover the one before it to the right. */
function apart(bars: Bar[]) {
  const row = [...bars].sort((a, b) => a.left - b.left)
  row.forEach((bar, k) => {
    const before = row.slice(Math.max(0, k - crowd), k).map((b, i, all) => ({ left: b.left, gaps: all.length - i }))
    const near = before.filter((b) => bar.left - b.left < b.gaps * narrowest)
    if (near.length > 0) bar.place = `max(${[bar.place, ...near.map((b) => `${b.left}% + ${b.gaps * gap}rem`)].join(', ')})`
  })
}

/** "12 ms", "3.4 s", "2 min 5 s". */
export function took(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.max(0, Math.round(milliseconds))} ms`
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`
  const minutes = Math.floor(milliseconds / 60_000)
  if (minutes < 60) return `${minutes} min ${Math.floor((milliseconds % 60_000) / 1000)} s`
  const hours = Math.floor(minutes / 60)
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`
}

/** What a step is, in a few words: "run argo.sync", "sleep". */
export function titleOf(step: Pick<Step, 'kind' | 'name'>): string {
  return step.name ? `${step.kind} ${step.name}` : step.kind
}
