// Permissions that members and groups have beside their roles: the list, giving one within limits, and revoking.
import { useId, useState } from 'react'
import { accepted, ask } from '../api/client'
import { GivePermissions, GrantTargets, Groups as GroupsOperation, RevokeGrant, UnanswerableRules, type GrantFields, type MembersData, type Permission, type Tier } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { ability, type Ability } from '../logic/ability'
import { ActButton } from './act'
import { announce } from './announce'
import { Confirm } from './confirm'
import { Dialog } from './dialog'
import { Field, findingsUnder, FormError, sentence } from './form'
import { Icon } from './icon'
import { Empty, Waiting } from './page'
import { Reason } from './reason'
import { Ago } from './time'
import { displayed } from '../logic/names'

type Member = MembersData['members']['nodes'][number]

/** Everybody may read, and to administer comes with the role only. */
const grantable: Permission[] = ['DEPLOY', 'APPROVE', 'CONFIGURE', 'FREEZE', 'REPORT', 'NUDGE', 'BYPASS', 'BREAK_GLASS']
const tiers: Tier[] = ['DEVELOPMENT', 'QA', 'STAGING', 'PRODUCTION']

const words = (name: string) => name.toLowerCase().replaceAll('_', '-')

/** Where a grant counts, as a sentence has it. */
export function limits(g: Pick<GrantFields, 'applications' | 'environments' | 'tiers'>): string {
  const parts = [
    g.applications.length > 0 && `applications ${g.applications.map((a) => a.name).join(', ')}`,
    g.environments.length > 0 && `environments ${g.environments.map(displayed).join(', ')}`,
    g.tiers.length > 0 && `tiers ${g.tiers.map(words).join(', ')}`,
  ].filter((p) => p !== false)
  return parts.length > 0 ? parts.join('; ') : 'everywhere'
}

/** Each grant once: a member also has those of its groups. */
export function everyGrant(members: Member[], groups: Array<{ grants: GrantFields[] }>): GrantFields[] {
  const all = [...members, ...groups].flatMap((holder) => holder.grants)
  return [...new Map(all.map((g) => [g.id, g])).values()].sort((a, b) => b.createdAt.localeCompare(a.createdAt))
}

export function Grants({ viewerCan, members }: { viewerCan: Ability[]; members: Member[] }) {
  const query = useAsk(GroupsOperation, { first: 100, after: null })
  const [open, setOpen] = useState<'new' | GrantFields | null>(null)
  const groups = query.data?.groups.nodes
  const all = groups && everyGrant(members, groups)
  return (
    <div className="stack">
      <div className="line">
        <ActButton ability={ability(viewerCan, 'grantPermissions')} className="primary" onClick={() => setOpen('new')}>
          Give permissions
        </ActButton>
      </div>
      {!all ? (
        <Waiting query={query} what="grants" />
      ) : all.length === 0 ? (
        <Empty icon="people" title="No grants yet">
          <p>A grant gives a member or a group permissions beside the role: everywhere, or for some applications, environments or tiers.</p>
        </Empty>
      ) : (
        <div className="scroll card" tabIndex={0} role="region" aria-label="Grants">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Who</th>
                <th scope="col">May</th>
                <th scope="col">Where</th>
                <th scope="col">Since</th>
                <th scope="col">
                  <span className="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {all.map((g) => (
                <tr key={g.id} data-grant={g.id}>
                  <th scope="row">
                    <bdi className="wrap">{holder(g)}</bdi>
                    {g.group && <div className="faint">a group</div>}
                  </th>
                  <td>
                    <ul className="tags">
                      {g.permissions.map((p) => (
                        <li key={p}>{words(p)}</li>
                      ))}
                    </ul>
                  </td>
                  <td>{limits(g)}</td>
                  <td>
                    <Ago at={g.createdAt} />
                  </td>
                  <td className="acts">
                    <ActButton ability={ability(viewerCan, 'revokeGrant')} label={`Revoke the grant of ${holder(g)}`} onClick={() => setOpen(g)}>
                      Revoke
                    </ActButton>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {open === 'new' && <NewGrant members={members} groups={groups ?? []} onClose={() => setOpen(null)} />}
      {open && open !== 'new' && (
        <Confirm
          title={`Revoke the grant of ${holder(open)}`}
          submit="Revoke"
          reasoned
          done={`The grant of ${holder(open)} is revoked.`}
          onClose={() => setOpen(null)}
          send={async (reason) => accepted((await ask(RevokeGrant, { input: { grantId: open.id, reason } })).revokeGrant)}
        >
          <p>
            {holder(open)} may not {open.permissions.map(words).join(', ')} by this grant any more ({limits(open)}). All tokens follow at once.
          </p>
        </Confirm>
      )}
    </div>
  )
}

function holder(g: GrantFields): string {
  return g.member?.name ?? g.group?.name ?? ''
}

function NewGrant({ members, groups, onClose }: { members: Member[]; groups: Array<{ id: string; name: string }>; onClose: () => void }) {
  const targets = useAsk(GrantTargets, {})
  const [who, setWho] = useState(groups[0]?.id ?? members[0]?.id ?? '')
  const [permissions, setPermissions] = useState<string[]>([])
  const [applications, setApplications] = useState<string[]>([])
  const [environments, setEnvironments] = useState<string[]>([])
  const [chosenTiers, setTiers] = useState<string[]>([])
  const [reason, setReason] = useState('')
  const id = useId()
  const change = useChange(
    async () => {
      const to = groups.some((g) => g.id === who) ? { groupId: who } : { memberId: who }
      const input = { ...to, permissions: permissions as Permission[], applications, environments, tiers: chosenTiers as Tier[], reason }
      return accepted((await ask(GivePermissions, { input })).grantPermissions)
    },
    () => {
      announce('The permissions are given, for all tokens at once.')
      onClose()
    },
  )
  return (
    <Dialog title="Give permissions" submit="Give" busy={change.isPending} disabled={permissions.length === 0 || who === ''} onSubmit={() => change.mutate(undefined)} onClose={onClose}>
      <Field id={`${id}-who`} label="To" problem={findingsUnder(change.error, 'memberId')[0]?.message ?? findingsUnder(change.error, 'groupId')[0]?.message}>
        <select id={`${id}-who`} aria-describedby={`${id}-who-notes`} value={who} onChange={(e) => setWho(e.target.value)}>
          <optgroup label="Groups">
            {groups.map((g) => (
              <option key={g.id} value={g.id}>
                {g.name}
              </option>
            ))}
          </optgroup>
          <optgroup label="Members">
            {members.map((m) => (
              <option key={m.id} value={m.id}>
                {m.name}
              </option>
            ))}
          </optgroup>
        </select>
      </Field>
      <Choice legend="Permissions" all={grantable.map((p) => ({ id: p, name: words(p) }))} chosen={permissions} choose={setPermissions} />
      <p className="faint">Without a limit the permissions count everywhere; otherwise only within every limit that is chosen.</p>
      <Choice legend="Only for applications" all={targets.data?.applications.nodes ?? []} chosen={applications} choose={setApplications} />
      <Choice legend="Only in environments" all={targets.data?.environments.nodes ?? []} chosen={environments} choose={setEnvironments} />
      <Choice legend="Only in tiers" all={tiers.map((t) => ({ id: t, name: words(t) }))} chosen={chosenTiers} choose={setTiers} />
      {(targets.data?.applications.pageInfo.hasNextPage || targets.data?.environments.pageInfo.hasNextPage) && (
        <p className="faint">The first 500 are listed; `lockstep member grant` takes any by name.</p>
      )}
      <Reason value={reason} onChange={setReason} />
      <FormError error={change.error} shown={(path) => path[0] === 'memberId' || path[0] === 'groupId'} />
    </Dialog>
  )
}

function Choice({ legend, all, chosen, choose }: { legend: string; all: Array<{ id: string; name: string; displayName?: string }>; chosen: string[]; choose: (next: string[]) => void }) {
  if (all.length === 0) return null
  return (
    <fieldset className="scopes">
      <legend>{legend}</legend>
      {all.map((one) => (
        <label key={one.id}>
          <input type="checkbox" checked={chosen.includes(one.id)} onChange={() => choose(chosen.includes(one.id) ? chosen.filter((c) => c !== one.id) : [...chosen, one.id])} /> {displayed(one)}
        </label>
      ))}
    </fieldset>
  )
}

/** Approvals that cannot be given any more: seen where members, groups and grants are changed. */
export function Unanswerable() {
  const rules = useAsk(UnanswerableRules, {}).data?.unanswerableRules ?? []
  if (rules.length === 0) return null
  return (
    <div role="status" className="banner bad">
      <Icon name="degraded" />
      <div>
        <p>
          <strong>{rules.length === 1 ? 'An approval cannot be given' : `${rules.length} approvals cannot be given`}:</strong> too few members are left who may.
        </p>
        {rules.slice(0, 5).map((r) => (
          <p key={`${r.rollout?.id} ${r.application?.name} ${r.gateId}`} dir="auto">
            {r.application ? `${r.application.name}: ` : ''}
            {sentence(r.problem)}
          </p>
        ))}
        {rules.length > 5 && <p>And {rules.length - 5} others: `lockstep access check` lists them.</p>}
      </div>
    </div>
  )
}
