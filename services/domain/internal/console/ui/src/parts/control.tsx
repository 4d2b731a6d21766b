// Change control of an environment, and whether workflows that belong to no rollout may change it.
import { useState } from 'react'
import { Link } from 'react-router'
import { accepted, ask } from '../api/client'
import { SetChangeControl, SetDirectChanges, type EnvironmentPageData } from '../api/generated'
import { ability } from '../logic/ability'
import { ActButton } from './act'
import { Confirm } from './confirm'
import { Chip } from './state'

type Environment = NonNullable<EnvironmentPageData['environment']>

/** What should be seen of an environment wherever it is named: that a second person confirms its changes, and that its gates can be gone around. */
export function ControlChips({ environment }: { environment: { changeControl: boolean; directChanges: boolean } }) {
  return (
    <>
      {environment.changeControl && <Chip tone="info" icon="people" word="Change control" />}
      {environment.directChanges && <Chip tone="wait" icon="degraded" word="Direct changes" />}
    </>
  )
}

export function Controls({ environment }: { environment: Environment }) {
  const { id, name, changeControl, directChanges } = environment
  const [open, setOpen] = useState<'control' | 'direct' | null>(null)
  const close = () => setOpen(null)
  return (
    <section className="card" aria-labelledby="controls">
      <h2 id="controls">Changes of its controls, and direct changes</h2>
      <p>
        {changeControl ? 'A second person confirms each change of its approvals, pipelines, policies and permissions.' : 'One person is enough to change its approvals, pipelines, policies and permissions.'}{' '}
        {changeControl && <Link to="/changes">Proposed changes</Link>}
      </p>
      <p>
        {directChanges
          ? 'Workflows that belong to no rollout may change it, although it is protected: they pass no gate.'
          : 'If it is protected, only rollouts change it. A workflow that belongs to none is refused.'}
      </p>
      <p className="buttons">
        <ActButton ability={ability(environment.viewerCan, 'setChangeControl')} onClick={() => setOpen('control')}>
          {changeControl ? 'End change control' : 'Put under change control'}
        </ActButton>
        <ActButton ability={ability(environment.viewerCan, 'setDirectChanges')} onClick={() => setOpen('direct')}>
          {directChanges ? 'Forbid direct changes' : 'Allow direct changes'}
        </ActButton>
      </p>
      {open === 'control' && (
        <Confirm
          title={changeControl ? `End change control of ${name}` : `Put ${name} under change control`}
          submit={changeControl ? 'Propose' : 'Put under change control'}
          tone="primary"
          reasoned
          done={changeControl ? `Change control of ${name} has ended.` : `${name} is under change control.`}
          onClose={close}
          send={async (reason) => accepted((await ask(SetChangeControl, { input: { environmentId: id, on: !changeControl, reason } })).setChangeControl)}
        >
          <p>{changeControl ? 'Ending it is a change like the others: a second person has to confirm it.' : 'From then on a second person confirms each change of its controls. It takes two people who may configure it.'}</p>
        </Confirm>
      )}
      {open === 'direct' && (
        <Confirm
          title={directChanges ? `Forbid direct changes of ${name}` : `Allow direct changes of ${name}`}
          submit={directChanges ? 'Forbid' : 'Allow'}
          tone={directChanges ? 'primary' : 'danger'}
          reasoned={directChanges ? true : 'required'}
          done={directChanges ? `Only rollouts change ${name}.` : `Workflows may change ${name} directly.`}
          onClose={close}
          send={async (reason) => accepted((await ask(SetDirectChanges, { input: { environmentId: id, allowed: !directChanges, reason } })).setDirectChanges)}
        >
          <p>{directChanges ? 'Workflows that belong to no rollout are refused from now on.' : 'Workflows that belong to no rollout may then change it without an approval, a check or a freeze in their way.'}</p>
        </Confirm>
      )}
    </section>
  )
}
