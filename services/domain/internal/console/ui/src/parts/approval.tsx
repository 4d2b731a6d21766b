// What an environment asks of every rollout that is to enter it, whatever its pipeline says, and the form that changes it.
import { useId, useState } from 'react'
import { accepted, ask } from '../api/client'
import { SetEnvironmentApproval, type EnvironmentPageData, type GateOutcome } from '../api/generated'
import { useChange } from '../api/hooks'
import { ability } from '../logic/ability'
import { span } from '../logic/time'
import { ActButton } from './act'
import { announce } from './announce'
import { Confirm } from './confirm'
import { Dialog } from './dialog'
import { Field, findingsUnder, FormError } from './form'
import { displayed } from '../logic/names'

type Environment = NonNullable<EnvironmentPageData['environment']>

export function RequiredApproval({ environment }: { environment: Environment }) {
  const { approval, name } = environment
  const [open, setOpen] = useState<'change' | 'drop' | null>(null)
  const can = ability(environment.viewerCan, 'setEnvironmentApproval')
  const drop = async () => accepted((await ask(SetEnvironmentApproval, { input: { environmentId: environment.id, approval: null } })).setEnvironmentApproval)
  return (
    <section className="card" aria-labelledby="asks">
      <h2 id="asks">Required approval</h2>
      {!approval && <p className="faint">None: rollouts enter as their pipelines say.</p>}
      {approval && (
        <p>
          {approval.quorum} {approval.quorum > 1 ? 'different people' : 'person'}
          {approval.group && ` of ${approval.group}`}
          {!approval.requesterMayApprove && ' other than the requester'}
          {approval.expiresAfterSeconds > 0 && `; without an answer in ${span(approval.expiresAfterSeconds * 1000)} it is ${approval.onExpiry === 'APPROVE' ? 'approved' : 'rejected'}`}.
        </p>
      )}
      {approval?.reason && (
        <p className="faint" dir="auto">
          {approval.reason}
        </p>
      )}
      <p className="buttons">
        <ActButton ability={can} onClick={() => setOpen('change')}>
          {approval ? 'Change the approval' : 'Require an approval'}
        </ActButton>
        {approval && (
          <ActButton ability={can} onClick={() => setOpen('drop')}>
            Require none
          </ActButton>
        )}
      </p>
      {open === 'change' && <ApprovalForm environment={environment} onClose={() => setOpen(null)} />}
      {open === 'drop' && (
        <Confirm title={`Require no approval before ${name}`} submit="Require none" done="Required approval removed" send={drop} onClose={() => setOpen(null)}>
          <p>New rollouts enter {name} as their pipelines define. Active rollouts keep the rules that they were created with.</p>
        </Confirm>
      )}
    </section>
  )
}

function ApprovalForm({ environment, onClose }: { environment: Environment; onClose: () => void }) {
  const now = environment.approval
  const [quorum, setQuorum] = useState(String(now?.quorum ?? 1))
  const [group, setGroup] = useState(now?.group ?? '')
  const [requesterMayApprove, setRequester] = useState(now?.requesterMayApprove ?? false)
  const [hours, setHours] = useState(String((now?.expiresAfterSeconds ?? 0) / 3600))
  const [onExpiry, setOnExpiry] = useState<GateOutcome>(now?.onExpiry ?? 'REJECT')
  const [reason, setReason] = useState(now?.reason ?? '')
  const id = useId()
  const change = useChange(
    async () => {
      const approval = { quorum: Number(quorum), group: group.trim(), requesterMayApprove, expiresAfterSeconds: Math.round(Number(hours) * 3600), onExpiry, reason }
      return accepted((await ask(SetEnvironmentApproval, { input: { environmentId: environment.id, approval } })).setEnvironmentApproval)
    },
    () => {
      announce('Required approval saved')
      onClose()
    },
  )
  const shown = ['quorum', 'group', 'expiresAfterSeconds']
  const problem = (field: string) => findingsUnder(change.error, 'approval', field)[0]?.message ?? findingsUnder(change.error, field)[0]?.message
  return (
    <Dialog title={`Approval before ${displayed(environment)}`} submit="Save" busy={change.isPending} onSubmit={() => change.mutate(undefined)} onClose={onClose}>
      <p>Every new rollout needs it before it enters {displayed(environment)}. No pipeline can weaken it.</p>
      <Field id={`${id}-quorum`} label="How many different people" problem={problem('quorum')}>
        <input id={`${id}-quorum`} aria-describedby={`${id}-quorum-notes`} type="number" min={1} max={20} required autoFocus value={quorum} onChange={(e) => setQuorum(e.target.value)} />
      </Field>
      <Field id={`${id}-group`} label="Group" optional help="That they belong to; without one, anyone who may approve." problem={problem('group')}>
        <input id={`${id}-group`} aria-describedby={`${id}-group-notes`} type="text" autoComplete="off" value={group} onChange={(e) => setGroup(e.target.value)} />
      </Field>
      <Field id={`${id}-requester`} label="The requester of the rollout may approve" inline>
        <input id={`${id}-requester`} aria-describedby={`${id}-requester-notes`} type="checkbox" checked={requesterMayApprove} onChange={(e) => setRequester(e.target.checked)} />
      </Field>
      <Field id={`${id}-hours`} label="Hours until it expires" help="0 for never; at most 720." problem={problem('expiresAfterSeconds')}>
        <input id={`${id}-hours`} aria-describedby={`${id}-hours-notes`} type="number" min={0} max={720} step="any" required value={hours} onChange={(e) => setHours(e.target.value)} />
      </Field>
      {Number(hours) > 0 && (
        <Field id={`${id}-expiry`} label="Then it is">
          <select id={`${id}-expiry`} aria-describedby={`${id}-expiry-notes`} value={onExpiry} onChange={(e) => setOnExpiry(e.target.value as GateOutcome)}>
            <option value="REJECT">rejected: the rollout is cancelled</option>
            <option value="APPROVE">approved: the rollout continues</option>
          </select>
        </Field>
      )}
      <Field id={`${id}-reason`} label="What the one who approves should know" optional>
        <input id={`${id}-reason`} aria-describedby={`${id}-reason-notes`} type="text" maxLength={900} value={reason} onChange={(e) => setReason(e.target.value)} />
      </Field>
      <FormError error={change.error} shown={(path) => shown.includes(path.at(-1) ?? '')} />
    </Dialog>
  )
}
