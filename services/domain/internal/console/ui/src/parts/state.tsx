// States as an icon and a word; the colour only helps.
import type { DeploymentStatus, Health, Readiness, RolloutStatus } from '../api/generated'
import { Icon } from './icon'

interface Look {
  word: string
  icon: string
  tone: 'quiet' | 'info' | 'busy' | 'wait' | 'good' | 'bad' | 'aborted'
}

const looks: Record<RolloutStatus | DeploymentStatus | Readiness | Health, Look> = {
  PENDING: { word: 'Pending', icon: 'pending', tone: 'quiet' },
  PLANNED: { word: 'Planned', icon: 'pending', tone: 'quiet' },
  IN_PROGRESS: { word: 'In progress', icon: 'moving', tone: 'busy' },
  PAUSED: { word: 'Paused', icon: 'paused', tone: 'wait' },
  ABORTING: { word: 'Aborting', icon: 'back', tone: 'aborted' },
  ABORTED: { word: 'Aborted', icon: 'back', tone: 'aborted' },
  COMPLETED: { word: 'Completed', icon: 'completed', tone: 'good' },
  FAILED: { word: 'Failed', icon: 'failed', tone: 'bad' },
  CANCELLED: { word: 'Cancelled', icon: 'cancelled', tone: 'quiet' },
  DEPLOYING: { word: 'Deploying', icon: 'moving', tone: 'busy' },
  HEALTHY: { word: 'Healthy', icon: 'completed', tone: 'good' },
  PROGRESSING: { word: 'Progressing', icon: 'moving', tone: 'busy' },
  UNKNOWN: { word: 'Unknown', icon: 'pending', tone: 'quiet' },
  DEGRADED: { word: 'Degraded', icon: 'degraded', tone: 'bad' },
  READY: { word: 'Ready', icon: 'completed', tone: 'good' },
  NOT_READY: { word: 'Not ready', icon: 'degraded', tone: 'bad' },
}

export function State({ state, word }: { state: RolloutStatus | DeploymentStatus | Readiness | Health; word?: string }) {
  // A newer release may have states that this page does not know.
  const look: Look = looks[state] ?? { word: state.charAt(0) + state.slice(1).toLowerCase().replaceAll('_', ' '), icon: 'pending', tone: 'quiet' }
  return <Chip tone={look.tone} icon={look.icon} word={word ?? look.word} />
}

export function Chip({ tone, icon, word }: { tone: Look['tone']; icon: string; word: string }) {
  return (
    <span className={`chip ${tone}`}>
      <Icon name={icon} />
      {word}
    </span>
  )
}

/** A rollout: an open gate is shown before its state, because that is what it waits for. */
export function RolloutChip({ state, gates }: { state: RolloutStatus; gates: number }) {
  if (gates > 0 && (state === 'IN_PROGRESS' || state === 'PENDING' || state === 'PLANNED')) return <Chip tone="wait" icon="gate" word="Waits for approval" />
  return <State state={state} />
}

export function stateWord(state: string): string {
  const known = Object.entries(looks).find(([name]) => name === state.toUpperCase())
  return known ? known[1].word.toLowerCase() : state
}
