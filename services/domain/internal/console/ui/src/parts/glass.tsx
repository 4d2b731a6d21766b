// Break-glass: the approvals of one rollout, and the checks of a rollback, are passed without anybody else's consent. It is red wherever it appears, asks for a reason,
// and is shown with the rollout permanently.
import { accepted, ask } from '../api/client'
import { BreakTheGlass, type RolloutPageData } from '../api/generated'
import { Confirm } from './confirm'
import { Icon } from './icon'
import { Ago } from './time'

type Rollout = NonNullable<RolloutPageData['rollout']>

export function GlassDialog({ rolloutId, what, onClose }: { rolloutId: string; what: string; onClose: () => void }) {
  return (
    <Confirm
      title={`Break glass for ${what}`}
      submit="Break glass"
      tone="danger"
      reasoned="required"
      done={`The approvals of ${what} are overridden by break-glass.`}
      onClose={onClose}
      send={async (reason) => accepted((await ask(BreakTheGlass, { input: { rolloutId, reason } })).breakGlass)}
    >
      <GlassMeans />
    </Confirm>
  )
}

/** What it does, and who will see it. */
export function GlassMeans() {
  return (
    <div className="glass" role="note">
      <Icon name="degraded" />
      <div>
        <p>
          <strong>This overrides every approval of this rollout, open or still to come,</strong> and in a rollback the checks of environments in which the version set has run. Nobody else has to consent.
        </p>
        <p>Your name and reason are recorded in the journal, stay with the rollout permanently, and raise an alert. Pauses, aborts and soak times stay in force.</p>
      </div>
    </div>
  )
}

/** On a rollout whose approvals were passed so. */
export function GlassBanner({ glass }: { glass: NonNullable<Rollout['breakGlass']> }) {
  return (
    <section className="glass" aria-label="Break-glass">
      <Icon name="degraded" />
      <div>
        <p>
          <strong>Break-glass: the approvals of this rollout were overridden</strong> by <bdi>{glass.principal?.name ?? 'a former member'}</bdi>, <Ago at={glass.at} />
        </p>
        <p dir="auto">{glass.reason}</p>
      </div>
    </section>
  )
}
