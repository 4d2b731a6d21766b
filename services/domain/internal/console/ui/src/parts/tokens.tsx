// The tokens of a member: made here, shown once, revoked here.
import { useId, useState } from 'react'
import { accepted, ask } from '../api/client'
import { AddToken, RevokeToken, type MembersData, type Permission } from '../api/generated'
import { useChange } from '../api/hooks'
import { announce } from './announce'
import { Confirm } from './confirm'
import { Dialog } from './dialog'
import { Field, findingsUnder, FormError } from './form'
import { Secret } from './secret'
import { Chip } from './state'
import { Ago, Due, useNow } from './time'

type Member = MembersData['members']['nodes'][number]
type Token = NonNullable<Member['tokens']>[number]

const scopeWords: Record<Permission, string> = {
  READ: 'view everything',
  DEPLOY: 'begin rollouts and act on them',
  APPROVE: 'answer gates',
  CONFIGURE: 'change applications, environments and pipelines',
  ADMINISTER: 'say who may do what',
  BREAK_GLASS: 'pass approvals alone, in an emergency',
  FREEZE: 'freeze, veto and pin',
  BYPASS: 'pass freezes, for one rollout',
  REPORT: 'report checks',
  NUDGE: 'have deployments looked at',
}

const lives: Array<[seconds: number, word: string]> = [
  [86_400, 'a day'],
  [7 * 86_400, 'a week'],
  [30 * 86_400, '30 days'],
  [90 * 86_400, '90 days'],
  [366 * 86_400, 'a year'],
]

interface TokensProps {
  viewer: { permissions: Permission[]; member: { id: string } | null }
  member: Member | null
}

export function Tokens({ viewer, member }: TokensProps) {
  const [making, setMaking] = useState(false)
  const [made, setMade] = useState<{ name: string; token: string } | null>(null)
  const [revoking, setRevoking] = useState<Token | null>(null)
  const now = useNow()
  if (!member) return <p className="faint">You are signed in with what is configured, not as a member: there are no tokens of yours.</p>
  const own = member.id === viewer.member?.id
  const good = (t: Token) => !t.revokedAt && Date.parse(t.expiresAt) > now
  const tokens = [...(member.tokens ?? [])].sort((a, b) => Number(good(b)) - Number(good(a)))
  return (
    <div className="stack">
      <header className="line">
        <h2>{own ? 'My tokens' : `Tokens of ${member.name}`}</h2>
        <button type="button" className="primary" onClick={() => setMaking(true)}>
          Make a token
        </button>
      </header>
      {made && <Secret what={`The token “${made.name}”`} secret={made.token} onDone={() => setMade(null)} />}
      {tokens.length === 0 ? (
        <p className="faint">No tokens yet. Scripts and the CLI show one to say who they are.</p>
      ) : (
        <div className="scroll card" tabIndex={0} role="region" aria-label="Tokens">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Token</th>
                <th scope="col">Good for</th>
                <th scope="col">Until</th>
                <th scope="col">Last used</th>
                <th scope="col">
                  <span className="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {tokens.map((t) => (
                <tr key={t.id}>
                  <th scope="row">
                    <span className="wrap">{t.name}</span>
                    <div className="faint">
                      created <Ago at={t.createdAt} />
                    </div>
                  </th>
                  <td>
                    <ul className="tags">
                      {t.scopes.map((s) => (
                        <li key={s} title={scopeWords[s]}>
                          {s.toLowerCase()}
                        </li>
                      ))}
                    </ul>
                    {t.checkKeys.length > 0 && <div className="faint wrap">only the checks {t.checkKeys.join(', ')}</div>}
                  </td>
                  <td>
                    {t.revokedAt ? <Chip tone="bad" icon="cancelled" word="Revoked" />
                    : good(t) ? <Due at={t.expiresAt} />
                    : <Chip tone="quiet" icon="clock" word="Expired" />}
                  </td>
                  <td>{t.lastUsedAt ? <Ago at={t.lastUsedAt} /> : <span className="faint">never</span>}</td>
                  <td className="acts">
                    {good(t) && (
                      <button type="button" aria-label={`Revoke ${t.name}`} onClick={() => setRevoking(t)}>
                        Revoke
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {making && (
        <NewToken
          member={member}
          may={viewer.permissions}
          onClose={() => setMaking(false)}
          onMade={(name, token) => {
            setMade({ name, token })
            setMaking(false)
          }}
        />
      )}
      {revoking && <Revoke token={revoking} onClose={() => setRevoking(null)} />}
    </div>
  )
}

interface NewTokenProps {
  member: Member
  may: Permission[]
  onClose: () => void
  onMade: (name: string, token: string) => void
}

function NewToken({ member, may, onClose, onMade }: NewTokenProps) {
  const [name, setName] = useState('')
  const [scopes, setScopes] = useState<Set<Permission>>(new Set(['READ']))
  const [life, setLife] = useState(90 * 86_400)
  const [keys, setKeys] = useState('')
  const keysId = useId()
  const checkKeys = scopes.has('REPORT') ? keys.split(/[\s,]+/).filter(Boolean) : []
  const nameId = useId()
  const lifeId = useId()
  const change = useChange(
    async () => accepted((await ask(AddToken, { input: { name, memberId: member.id, scopes: [...scopes], lifetimeSeconds: life, checkKeys } })).createToken),
    (payload) => {
      announce('Token created. It is shown only once.')
      onMade(name, payload.token ?? '')
    },
  )
  const toggle = (scope: Permission) => {
    const next = new Set(scopes)
    if (!next.delete(scope)) next.add(scope)
    setScopes(next)
  }
  return (
    <Dialog title={`Make a token for ${member.name}`} submit="Make" busy={change.isPending} onSubmit={() => change.mutate(undefined)} onClose={onClose}>
      <Field id={nameId} label="Name" help="What it is for: laptop, nightly job" problem={findingsUnder(change.error, 'name')[0]?.message}>
        <input id={nameId} aria-describedby={`${nameId}-notes`} type="text" autoComplete="off" autoFocus value={name} onChange={(e) => setName(e.target.value)} />
      </Field>
      <fieldset className="scopes">
        <legend>Good for</legend>
        {may.map((s) => (
          <label key={s}>
            <input type="checkbox" checked={s === 'READ' || scopes.has(s)} disabled={s === 'READ'} onChange={() => toggle(s)} /> {s.toLowerCase()} <span className="faint">{scopeWords[s]}</span>
          </label>
        ))}
      </fieldset>
      {scopes.has('REPORT') && (
        <Field id={keysId} label="Keys of checks" optional help="Those that it may report, with spaces between them; all, if left empty." problem={findingsUnder(change.error, 'checkKeys')[0]?.message}>
          <input id={keysId} aria-describedby={`${keysId}-notes`} type="text" autoComplete="off" value={keys} onChange={(e) => setKeys(e.target.value)} />
        </Field>
      )}
      <Field id={lifeId} label="For">
        <select id={lifeId} aria-describedby={`${lifeId}-notes`} value={life} onChange={(e) => setLife(Number(e.target.value))}>
          {lives.map(([seconds, word]) => (
            <option key={seconds} value={seconds}>
              {word}
            </option>
          ))}
        </select>
      </Field>
      <FormError error={change.error} shown={(path) => path[0] === 'name' || path[0] === 'checkKeys'} />
    </Dialog>
  )
}

function Revoke({ token, onClose }: { token: Token; onClose: () => void }) {
  const send = async () => accepted((await ask(RevokeToken, { input: { tokenId: token.id } })).revokeToken)
  return (
    <Confirm title={`Revoke “${token.name}”`} submit="Revoke" done={`${token.name} is revoked.`} send={send} onClose={onClose}>
      <p>It is good for nothing from now on, and the sessions that browsers began with it end at once.</p>
    </Confirm>
  )
}
