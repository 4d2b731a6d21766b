// What a pipeline's document says (pkg/flow), as far as the console draws it. It is read without trust: a step of a kind that
// this build does not know is drawn with its name.

export interface GatePlan {
  weight: number
  soak: number
  approval: { reason: string } | null
}

/** jobs are the names of those before and after a deployment: each is used once in an environment. */
export type Step =
  | { kind: 'deploy'; environment: string; approval: { reason: string } | null; gates: GatePlan[]; config: unknown; jobs?: string[] }
  | { kind: 'approval'; gateId: string; reason: string }
  | { kind: 'pause'; seconds: number; name: string; mayBeLeft: boolean }
  | { kind: 'other'; type: string; name: string; environment: string; mayBeLeft: boolean }

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {}
}

const text = (value: unknown, otherwise = '') => (typeof value === 'string' ? value : otherwise)
const number = (value: unknown) => (typeof value === 'number' ? value : 0)

function approval(value: unknown): { reason: string } | null {
  return value === undefined || value === null ? null : { reason: text(record(value).reason) }
}

function step(value: unknown, index: number): Step {
  const s = record(value)
  switch (s.type) {
    case 'deploy':
      return {
        kind: 'deploy',
        environment: text(s.environment),
        approval: approval(s.approval),
        gates: (Array.isArray(s.gates) ? s.gates : []).map(record).map((g) => ({
          weight: number(g.weight),
          soak: number(g.soak_duration),
          approval: approval(g.approval),
        })),
        config: s.config,
        jobs: [s.before, s.after].flatMap((jobs) => (Array.isArray(jobs) ? jobs : []).map((job) => text(record(job).name))),
      }
    case 'approval':
      return { kind: 'approval', gateId: text(s.name, `step-${index}`), reason: text(s.reason) }
    case 'pause':
      return { kind: 'pause', seconds: number(s.duration), name: text(s.name), mayBeLeft: s.skip_on !== undefined }
    default: {
      const job = record(s.job)
      return { kind: 'other', type: text(s.type, 'unknown'), name: text(s.name, text(job.name)), environment: text(s.environment), mayBeLeft: (s.skip_on ?? job.skip_on) !== undefined }
    }
  }
}

export function readPipeline(definition: unknown): Step[] {
  const steps = record(definition).steps
  return Array.isArray(steps) ? steps.map(step) : []
}
