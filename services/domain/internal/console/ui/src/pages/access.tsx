// Who may do what: members with their roles, groups, and tokens. What is shown once is shown once.
import { useId, useState } from 'react'
import { Link, useSearchParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { AccessViewer, AddGroup, AddMember, Groups as GroupsOperation, Members as MembersOperation, RemoveMember, SetGroup, SetRole, type AccessViewerData, type GroupsData, type MemberKind, type MembersData, type Role } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { ability } from '../logic/ability'
import { ActButton } from '../parts/act'
import { announce } from '../parts/announce'
import { Confirm } from '../parts/confirm'
import { Dialog } from '../parts/dialog'
import { Field, findingsUnder, FormError } from '../parts/form'
import { Grants, Unanswerable } from '../parts/grants'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Ago } from '../parts/time'
import { Tokens } from '../parts/tokens'
import { Text } from './new-application'

type Member = MembersData['members']['nodes'][number]
type Group = GroupsData['groups']['nodes'][number]
export type Viewer = AccessViewerData['viewer']

export const roles: Array<[role: Role, word: string, may: string]> = [
  ['VIEWER', 'Viewer', 'Looks at everything.'],
  ['APPROVER', 'Approver', 'Looks at everything, and answers gates.'],
  ['DEPLOYER', 'Deployer', 'Begins rollouts, and acts on them; answers no gates.'],
  ['MAINTAINER', 'Maintainer', 'Deploys and approves, and changes applications, environments and pipelines.'],
  ['OWNER', 'Owner', 'All of it, and says who may do what.'],
]

const views = [
  ['members', 'Members'],
  ['groups', 'Groups'],
  ['grants', 'Grants'],
  ['tokens', 'My tokens'],
] as const

export default function Access() {
  const [search] = useSearchParams()
  const view = search.get('show') ?? 'members'
  const after = search.get('after')
  const viewer = useAsk(AccessViewer, {})
  const members = useAsk(MembersOperation, { first: 200, after: view === 'members' ? after : null })
  const data = viewer.data?.viewer
  const all = members.data?.members
  return (
    <Page title="Access" lead={<p>People and machines of the organization, what their role allows, and the tokens they show.</p>}>
      <nav className="tabs" aria-label="What to show">
        {views.map(([key, word]) => (
          <Link key={key} to={`?show=${key}`} aria-current={view === key ? 'page' : undefined}>
            {word}
          </Link>
        ))}
      </nav>
      <Unanswerable />
      {!data || !all ? (
        <Waiting query={viewer.data ? members : viewer} what="members" />
      ) : view === 'groups' ? (
        <Groups viewer={data} members={all.nodes} />
      ) : view === 'grants' ? (
        <Grants viewerCan={data.viewerCan} members={all.nodes} />
      ) : view === 'tokens' ? (
        <Tokens viewer={data} member={data.member} />
      ) : (
        <>
          <Members viewer={data} members={all.nodes} />
          <More info={all.pageInfo} after={after} />
        </>
      )}
    </Page>
  )
}

function Members({ viewer, members }: { viewer: Viewer; members: Member[] }) {
  const [open, setOpen] = useState<'new' | { remove: Member } | { tokens: string } | null>(null)
  const change = useChange(
    async ({ member, role }: { member: Member; role: Role }) => accepted((await ask(SetRole, { input: { memberId: member.id, role } })).setMemberRole),
    () => announce('The role is changed, for all tokens and sessions at once.'),
  )
  const mayChange = ability(viewer.viewerCan, 'setMemberRole')
  const shown = open && typeof open === 'object' && 'tokens' in open ? members.find((m) => m.id === open.tokens) : undefined
  return (
    <div className="stack">
      <div className="line">
        <ActButton ability={ability(viewer.viewerCan, 'createMember')} className="primary" onClick={() => setOpen('new')}>
          Add a member
        </ActButton>
      </div>
      <FormError error={change.error} shown={() => false} />
      <div className="scroll card" tabIndex={0} role="region" aria-label="Members">
        <table className="list">
          <thead>
            <tr>
              <th scope="col">Member</th>
              <th scope="col">Role</th>
              <th scope="col">Groups</th>
              <th scope="col">Since</th>
              <th scope="col">
                <span className="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {members.map((m) => (
              <tr key={m.id}>
                <th scope="row">
                  <bdi className="wrap">{m.name}</bdi> {m.id === viewer.member?.id && <span className="faint">you</span>}
                  <div className="faint">{m.kind === 'AGENT' ? 'a machine' : 'a person'}</div>
                </th>
                <td>
                  {mayChange.allowed ? (
                    <select aria-label={`Role of ${m.name}`} value={m.role} disabled={change.isPending} onChange={(e) => change.mutate({ member: m, role: e.target.value as Role })}>
                      {roles.map(([role, word, may]) => (
                        <option key={role} value={role} title={may}>
                          {word}
                        </option>
                      ))}
                    </select>
                  ) : (
                    roles.find(([role]) => role === m.role)?.[1]
                  )}
                </td>
                <td>
                  <ul className="tags">
                    {m.groups.map((g) => (
                      <li key={g.id}>{g.name}</li>
                    ))}
                  </ul>
                </td>
                <td>
                  <Ago at={m.createdAt} />
                </td>
                <td className="acts">
                  <span className="buttons">
                    {m.tokens && (
                      <button type="button" aria-label={`Tokens of ${m.name}`} onClick={() => setOpen({ tokens: m.id })}>
                        Tokens
                      </button>
                    )}
                    <ActButton ability={ability(viewer.viewerCan, 'removeMember')} label={`Remove ${m.name}`} onClick={() => setOpen({ remove: m })}>
                      Remove
                    </ActButton>
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown && (
        <section className="card" aria-label={`Tokens of ${shown.name}`}>
          <Tokens viewer={viewer} member={shown} />
        </section>
      )}
      {open === 'new' && <NewMember onClose={() => setOpen(null)} />}
      {open && typeof open === 'object' && 'remove' in open && <Remove member={open.remove} onClose={() => setOpen(null)} />}
    </div>
  )
}

function NewMember({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('')
  const [kind, setKind] = useState<MemberKind>('USER')
  const [role, setRole] = useState<Role>('VIEWER')
  const kindId = useId()
  const roleId = useId()
  const change = useChange(
    async () => accepted((await ask(AddMember, { input: { name, kind, role } })).createMember),
    () => {
      announce(`${name} is a member.`)
      onClose()
    },
  )
  return (
    <Dialog title="Add a member" submit="Add" busy={change.isPending} onSubmit={() => change.mutate(undefined)} onClose={onClose}>
      <Text label="Name" field="name" value={name} onChange={setName} problem={findingsUnder(change.error, 'name')[0]?.message} help="An address, as the identity provider has it: alice@example.com" />
      <Field id={kindId} label="Kind">
        <select id={kindId} aria-describedby={`${kindId}-notes`} value={kind} onChange={(e) => setKind(e.target.value as MemberKind)}>
          <option value="USER">A person</option>
          <option value="AGENT">A machine</option>
        </select>
      </Field>
      <Field id={roleId} label="Role" help={roles.find(([r]) => r === role)?.[2]}>
        <select id={roleId} aria-describedby={`${roleId}-notes`} value={role} onChange={(e) => setRole(e.target.value as Role)}>
          {roles.map(([r, word]) => (
            <option key={r} value={r}>
              {word}
            </option>
          ))}
        </select>
      </Field>
      <FormError error={change.error} shown={(path) => path[0] === 'name'} />
    </Dialog>
  )
}

function Remove({ member, onClose }: { member: Member; onClose: () => void }) {
  const send = async () => accepted((await ask(RemoveMember, { input: { memberId: member.id } })).removeMember)
  return (
    <Confirm title={`Remove ${member.name}`} submit="Remove" done={`${member.name} is removed.`} send={send} onClose={onClose}>
      <p>Every token and session of {member.name} is good for nothing from now on. What was done stays on record under the name.</p>
    </Confirm>
  )
}

function Groups({ viewer, members }: { viewer: Viewer; members: Member[] }) {
  const query = useAsk(GroupsOperation, { first: 100, after: null })
  const [open, setOpen] = useState<Group | 'new' | null>(null)
  const groups = query.data?.groups.nodes
  return (
    <div className="stack">
      <div className="line">
        <ActButton ability={ability(viewer.viewerCan, 'createGroup')} className="primary" onClick={() => setOpen('new')}>
          Make a group
        </ActButton>
      </div>
      {!groups ? (
        <Waiting query={query} what="groups" />
      ) : groups.length === 0 ? (
        <Empty icon="people" title="No groups yet">
          <p>A group is who may answer a gate: a pipeline or an environment names it.</p>
        </Empty>
      ) : (
        <div className="scroll card" tabIndex={0} role="region" aria-label="Groups">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Group</th>
                <th scope="col">Members</th>
                <th scope="col">
                  <span className="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {groups.map((g) => (
                <tr key={g.id}>
                  <th scope="row">{g.name}</th>
                  <td>
                    {g.members.length === 0 && <span className="faint">nobody</span>}
                    <ul className="tags">
                      {g.members.map((m) => (
                        <li key={m.id}>{m.name}</li>
                      ))}
                    </ul>
                  </td>
                  <td className="acts">
                    <ActButton ability={ability(viewer.viewerCan, 'setGroupMembers')} label={`Change ${g.name}`} onClick={() => setOpen(g)}>
                      Change
                    </ActButton>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {open && <EditGroup group={open === 'new' ? null : open} members={members} onClose={() => setOpen(null)} />}
    </div>
  )
}

function EditGroup({ group, members, onClose }: { group: Group | null; members: Member[]; onClose: () => void }) {
  const [name, setName] = useState('')
  const [chosen, setChosen] = useState(() => new Set(group?.members.map((m) => m.id)))
  const change = useChange(
    async () =>
      group
        ? accepted((await ask(SetGroup, { input: { groupId: group.id, members: [...chosen] } })).setGroupMembers)
        : accepted((await ask(AddGroup, { input: { name, members: [...chosen] } })).createGroup),
    () => {
      announce(`The group ${group?.name ?? name} has ${chosen.size} members.`)
      onClose()
    },
  )
  const toggle = (id: string) => {
    const next = new Set(chosen)
    if (!next.delete(id)) next.add(id)
    setChosen(next)
  }
  return (
    <Dialog title={group ? `Who belongs to ${group.name}` : 'Make a group'} submit={group ? 'Save' : 'Make'} busy={change.isPending} onSubmit={() => change.mutate(undefined)} onClose={onClose}>
      {!group && <Text label="Name" field="name" value={name} onChange={setName} problem={findingsUnder(change.error, 'name')[0]?.message} help="As pipelines will name it: release-managers" />}
      <fieldset className="scopes">
        <legend>Members</legend>
        {members.map((m) => (
          <label key={m.id}>
            <input type="checkbox" checked={chosen.has(m.id)} onChange={() => toggle(m.id)} /> {m.name}
          </label>
        ))}
      </fieldset>
      <FormError error={change.error} shown={(path) => path[0] === 'name'} />
    </Dialog>
  )
}
