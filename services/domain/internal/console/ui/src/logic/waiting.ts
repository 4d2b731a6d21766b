// Why a rollout is waiting: the conditions are the server's (waitingOn), in its words. Here they are put together for people:
// the services that are on their way to one gate are one condition, with those that stand there already.
import type { GateFields, RolloutPageData, WaitKind } from '../api/generated'
import { readPipeline } from './pipeline'
import { lane, type Place } from './gates'
import { displayed } from './names'

type Rollout = NonNullable<RolloutPageData['rollout']>
type Wait = Rollout['waitingOn'][number]

export interface Condition {
  key: string
  kind: WaitKind
  /** Nobody is left who could satisfy it. */
  stuck: boolean
  title: string
  detail: string
  /** Why others wait with it; empty where nobody does. */
  joint: string
  resolver: string
  since: string | null
  until: string | null
  gate: GateFields | null
  /** Members who can still approve, by name. */
  approvers: string[]
  /** Where the status of a check was reported from. */
  link: string | null
}

const terminal = ['COMPLETED', 'FAILED', 'CANCELLED']

export function isOver(state: string): boolean {
  return terminal.includes(state)
}

/** As a sentence has them: of many, the first four and how many others there are. */
export function names(all: string[]): string {
  if (all.length > 6) return `${all.slice(0, 4).join(', ')} and ${all.length - 4} others`
  return all.length < 2 ? (all[0] ?? '') : `${all.slice(0, -1).join(', ')} and ${all[all.length - 1]}`
}

const verb = (all: string[], one: string, more: string) => (all.length > 1 ? more : one)

/** What the services that move in an environment are on their way to, and who stands there already. */
function together(rollout: Rollout, place: Place): { goal: string; joint: string } {
  const { rows, plan } = lane(place, readPipeline(rollout.flowDefinition.definition))
  const index = plan.findIndex((_, i) => rows.some((r) => r.marks[i] === 'next'))
  const gate = plan[index]
  if (!gate) return { goal: 'full traffic and health', joint: '' }
  const there = rows.filter((r) => r.marks[index] === 'here').map((r) => displayed(r.deployment.service))
  const joint = there.length > 0 ? `${names(there)} ${verb(there, 'has', 'have')} arrived already: no service passes a gate before all have reached it.` : ''
  return { goal: `${gate.weight} %`, joint }
}

function moving(rollout: Rollout, waits: Wait[]): Condition {
  const first = waits[0] as Wait
  const services = waits.flatMap((w) => (w.service ? [displayed(w.service)] : []))
  const place = rollout.environments.find((e) => e.environment.id === first.environment?.id)
  if (rollout.status === 'ABORTING') return { ...plain(rollout, first), key: `HEALTH ${first.environment?.id ?? ''}`, title: `${names(services)} ${verb(services, 'is', 'are')} being taken back in ${first.environment ? displayed(first.environment) : 'an environment'}`, detail: '' }
  const { goal, joint } = place ? together(rollout, place) : { goal: 'health', joint: '' }
  const times = waits.flatMap((w) => (w.since ? [w.since] : [])).sort()
  return {
    ...plain(rollout, first),
    key: `HEALTH ${first.environment?.id ?? ''}`,
    title: `${names(services)} ${verb(services, 'is', 'are')} on ${verb(services, 'its', 'their')} way to ${goal} in ${first.environment ? displayed(first.environment) : 'an environment'}`,
    detail: '',
    joint,
    since: times[0] ?? null,
  }
}

function title(rollout: Rollout, w: Wait): string {
  const where = w.environment ? displayed(w.environment) : 'an environment'
  switch (w.kind) {
    case 'HAND_OVER':
      return 'Its workflow has not started'
    case 'APPROVAL':
      return `“${w.gateId ?? ''}” needs approval`
    case 'PAUSE':
      if (rollout.status === 'ABORTED') return 'Aborted: retry it, roll it back or cancel it'
      return rollout.status === 'ABORTING' ? 'Aborting: the previous version is being restored' : 'Paused'
    case 'SOAK':
      return `Soaking at ${/\d+$/.exec(w.gateId ?? '')?.[0] ?? '?'} % in ${where}`
    case 'ENVIRONMENT':
      return `${where} is not ready`
    case 'AGENT':
      return `No agent can be reached in ${where}`
    case 'FREEZE':
      return `A freeze stops “${w.gateId ?? ''}”`
    case 'CHECK':
      return `“${w.gateId ?? ''}” waits for ${w.subject ? `check ${w.subject}` : 'a check'} of ${where}`
    case 'POLICY':
      return `Policy ${w.subject ?? ''} denies “${w.gateId ?? ''}”`
    case 'VETO':
      return 'What it carries is vetoed'
    case 'PIN':
      return `${where} is pinned`
    case 'HEALTH':
      return `A service is being deployed in ${where}`
  }
}

function plain(rollout: Rollout, w: Wait): Condition {
  return {
    key: `${w.kind} ${w.gateId ?? ''} ${w.subject ?? ''} ${w.environment?.id ?? ''} ${w.service?.id ?? ''}`,
    kind: w.kind,
    stuck: w.status === 'UNSATISFIABLE',
    title: title(rollout, w),
    // The title says all of it.
    detail: w.kind === 'SOAK' ? '' : w.detail,
    joint: '',
    resolver: w.resolver,
    since: w.since,
    until: w.until,
    gate: (w.kind === 'APPROVAL' && rollout.openGates.find((g) => g.gateId === w.gateId)) || null,
    approvers: w.approvers.map((m) => m.name),
    link: w.link,
  }
}

/** The conditions, in the order of promotion; what moves in an environment is one of them. */
export function conditions(rollout: Rollout): Condition[] {
  const all: Condition[] = []
  const done = new Set<string>()
  for (const w of rollout.waitingOn) {
    if (w.kind !== 'HEALTH') {
      all.push(plain(rollout, w))
      continue
    }
    const place = w.environment?.id ?? ''
    if (done.has(place)) continue
    done.add(place)
    all.push(moving(rollout, rollout.waitingOn.filter((o) => o.kind === 'HEALTH' && o.environment?.id === w.environment?.id)))
  }
  return all
}
