// What the pages about notifications of an organization and about one's own have in common.
import type { NotificationState } from '../api/generated'
import type { Schema } from '../form/schema'

export const states: Record<NotificationState, { tone: 'good' | 'wait' | 'bad' | 'quiet'; icon: string; word: string }> = {
  PENDING: { tone: 'wait', icon: 'pending', word: 'To be sent' },
  SENDING: { tone: 'wait', icon: 'moving', word: 'Being sent' },
  SENT: { tone: 'good', icon: 'completed', word: 'Sent' },
  FAILED: { tone: 'bad', icon: 'failed', word: 'Failed' },
  DIGESTED: { tone: 'quiet', icon: 'same', word: 'In a digest' },
}

export const moments = [
  'approval_needed', 'call_requested', 'rollout_began', 'rollout_stopped', 'rollout_failed', 'rollback_began', 'rolled_back', 'rollout_completed', 'check_failed', 'check_passed', 'breach',
  'freeze_began', 'freeze_ended', 'freeze_bypassed', 'agent_offline', 'agent_online', 'drift', 'drift_ended', 'trigger_declined', 'credential_expires',
]

/** Steps of rollouts, of which only what names them hears. */
export const steps = ['rollout_queued', 'rollout_dropped', 'rollout_planned', 'rollout_started', 'environment_entered', 'environment_completed', 'environment_failed']

/** More for tools than for people: only routes name them. */
export const forTools = ['environment_created', 'environment_changed', 'environment_archived', 'environment_restored', 'artifact_published', 'artifact_deleted']

export const texts = (title: string, description: string): Schema => ({ type: 'array', title, description, maxItems: 50, items: { type: 'string', minLength: 1, maxLength: 256 } }) as Schema
export const choice = (title: string, description: string, words: string[]): Schema => ({ type: 'array', title, description, items: { type: 'string', enum: words } }) as Schema

export const quiet = {
  type: 'object',
  title: 'Quiet hours',
  description: 'What is not of high severity waits for their end.',
  additionalProperties: false,
  required: ['from', 'to', 'time_zone'],
  properties: {
    from: { type: 'string', title: 'From', description: 'Such as 22:00.' },
    to: { type: 'string', title: 'To', description: 'Such as 07:00.' },
    time_zone: { type: 'string', title: 'Time zone', description: 'Such as Europe/Berlin.' },
  },
} as unknown as Schema
