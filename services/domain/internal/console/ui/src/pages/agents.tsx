// Agents: the relays beside clusters. Registered here, with keys that are shown once, rotated and revoked.
import { useId, useState } from 'react'
import { useSearchParams } from 'react-router'
import { accepted, ask } from '../api/client'
import { Agents as Operation, RegisterAgent, RevokeAgent, RevokeAgentKey, RotateAgent, type AgentsData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { ability } from '../logic/ability'
import { ActButton } from '../parts/act'
import { announce } from '../parts/announce'
import { Confirm } from '../parts/confirm'
import { Dialog } from '../parts/dialog'
import { Field, findingsUnder, FormError } from '../parts/form'
import { Empty, More, Page, Waiting } from '../parts/page'
import { Secret } from '../parts/secret'
import { Chip } from '../parts/state'
import { Ago, Due, useNow } from '../parts/time'
import { Text } from './new-application'
import { displayed } from '../logic/names'
import { EnvironmentLink } from '../parts/named'

type Agent = AgentsData['agents']['nodes'][number]
type Key = Agent['keys'][number]
interface Made {
  name: string
  seed: string
}

export default function Agents() {
  const [search] = useSearchParams()
  const after = search.get('after')
  const query = useAsk(Operation, { first: 50, after })
  const [registering, setRegistering] = useState(false)
  const [made, setMade] = useState<Made | null>(null)
  const nodes = query.data && [...query.data.agents.nodes].sort((a, b) => Number(Boolean(a.revokedAt)) - Number(Boolean(b.revokedAt)))
  const mayRegister = ability(query.data?.viewer.viewerCan, 'registerAgent')
  return (
    <Page
      title="Agents"
      lead={<p>An agent is the relay beside a cluster: it dials out, and acts there. Environments name the one that reaches their cluster.</p>}
      beside={
        <ActButton ability={mayRegister} className="primary" onClick={() => setRegistering(true)}>
          Register an agent
        </ActButton>
      }
    >
      <div className="stack">
        {made && <Secret what={`The key of ${made.name}`} secret={made.seed} onDone={() => setMade(null)} />}
        {!nodes ? (
          <Waiting query={query} what="agents" />
        ) : nodes.length === 0 ? (
          <Empty icon="agent" title="No agents yet">
            <p>Register one for each cluster; its key goes into the Secret that the relay’s chart reads.</p>
          </Empty>
        ) : (
          nodes.map((a) => <Card key={a.id} agent={a} onMade={setMade} />)
        )}
        {query.data && <More info={query.data.agents.pageInfo} after={after} />}
      </div>
      {registering && (
        <Register
          onClose={() => setRegistering(false)}
          onMade={(m) => {
            setMade(m)
            setRegistering(false)
          }}
        />
      )}
    </Page>
  )
}

function Card({ agent, onMade }: { agent: Agent; onMade: (made: Made) => void }) {
  const [open, setOpen] = useState<'rotate' | 'revoke' | Key | null>(null)
  const close = () => setOpen(null)
  return (
    <section className="card" aria-label={`Agent ${agent.name}`}>
      <header className="line">
        <h2>{agent.name}</h2>
        <span className="faint">number {agent.number}</span>
        {Object.entries(agent.labels as Record<string, string>).map(([key, value]) => (
          <span key={key} className="faint mono">
            {key}={value}
          </span>
        ))}
        {agent.revokedAt ? <Chip tone="bad" icon="cancelled" word="Revoked" /> : agent.connected ? <Chip tone="good" icon="completed" word="Connected" /> : <Chip tone="wait" icon="offline" word="Not connected" />}
        <span className="faint">
          {agent.revokedAt ? <>revoked <Ago at={agent.revokedAt} /></> : agent.lastSeenAt ? <>last seen <Ago at={agent.lastSeenAt} /></> : 'never seen'}
        </span>
        {!agent.revokedAt && (
          <span className="buttons push">
            <ActButton ability={ability(agent.viewerCan, 'rotateAgent')} label={`Rotate key of ${agent.name}`} onClick={() => setOpen('rotate')}>
              Rotate key
            </ActButton>
            <ActButton ability={ability(agent.viewerCan, 'revokeAgent')} label={`Revoke ${agent.name}`} onClick={() => setOpen('revoke')}>
              Revoke
            </ActButton>
          </span>
        )}
      </header>
      <p>
        {agent.environments.length === 0 ? (
          <span className="faint">No environment deploys through it.</span>
        ) : (
          <>
            Deploys to{' '}
            {agent.environments.map((e, i) => (
              <span key={e.id}>
                {i > 0 && ', '}
                <EnvironmentLink of={e} />
              </span>
            ))}
          </>
        )}
      </p>
      <Keys agent={agent} onRevoke={setOpen} />
      {open === 'rotate' && <Rotate agent={agent} onClose={close} onMade={onMade} />}
      {open === 'revoke' && <Revoke agent={agent} onClose={close} />}
      {open && typeof open === 'object' && <RevokeKey agent={agent} agentKey={open} onClose={close} />}
    </section>
  )
}

function Keys({ agent, onRevoke }: { agent: Agent; onRevoke: (key: Key) => void }) {
  const now = useNow()
  if (agent.keys.length === 0) return null
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label={`Keys of ${agent.name}`}>
      <table className="list">
        <thead>
          <tr>
            <th scope="col">Key</th>
            <th scope="col">Good</th>
            <th scope="col">Last seen</th>
            <th scope="col">
              <span className="visually-hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {agent.keys.map((k) => {
            const over = k.revokedAt || (k.expiresAt && Date.parse(k.expiresAt) <= now)
            return (
              <tr key={k.id}>
                <th scope="row">
                  <code>{k.publicKey.slice(0, 12)}…</code>
                  <div className="faint">
                    created <Ago at={k.createdAt} />
                  </div>
                </th>
                <td>{k.revokedAt ? 'revoked' : over ? 'replaced' : k.expiresAt ? <>replaced, until <Due at={k.expiresAt} /></> : 'until it is replaced'}</td>
                <td>{k.lastSeenAt ? <Ago at={k.lastSeenAt} /> : <span className="faint">never</span>}</td>
                <td className="acts">
                  {!over && !agent.revokedAt && (
                    <ActButton ability={ability(agent.viewerCan, 'revokeAgentKey')} label={`Revoke key ${k.publicKey.slice(0, 12)}`} onClick={() => onRevoke(k)}>
                      Revoke key
                    </ActButton>
                  )}
                </td>
              </tr>
            )
          })}
        </tbody>
      </table>
    </div>
  )
}

function Register({ onClose, onMade }: { onClose: () => void; onMade: (made: Made) => void }) {
  const [name, setName] = useState('')
  const change = useChange(
    async () => accepted((await ask(RegisterAgent, { input: { name } })).registerAgent),
    (p) => {
      announce(`${name} is registered. Its key is shown now, and never again.`)
      onMade({ name, seed: p.seed ?? '' })
    },
  )
  return (
    <Dialog title="Register an agent" submit="Register" busy={change.isPending} onSubmit={() => change.mutate(undefined)} onClose={onClose}>
      <Text label="Name" field="name" value={name} onChange={setName} problem={findingsUnder(change.error, 'name')[0]?.message} help="Such as the cluster’s: eu-west-1" />
      <FormError error={change.error} shown={(path) => path[0] === 'name'} />
    </Dialog>
  )
}

const overlaps: Array<[seconds: number, word: string]> = [
  [0, 'ends at once'],
  [3_600, 'stays good for an hour'],
  [86_400, 'stays good for a day'],
  [7 * 86_400, 'stays good for a week'],
]

function Rotate({ agent, onClose, onMade }: { agent: Agent; onClose: () => void; onMade: (made: Made) => void }) {
  const [overlap, setOverlap] = useState(86_400)
  const id = useId()
  const change = useChange(
    async () => accepted((await ask(RotateAgent, { input: { agentId: agent.id, overlapSeconds: overlap } })).rotateAgent),
    (p) => {
      announce(`${agent.name} has another key. It is shown now, and never again.`)
      onMade({ name: agent.name, seed: p.seed ?? '' })
      onClose()
    },
  )
  return (
    <Dialog title={`Another key for ${agent.name}`} submit="Make the key" busy={change.isPending} onSubmit={() => change.mutate(undefined)} onClose={onClose}>
      <Field id={id} label="The key before" help="Long enough to give the relay the new one.">
        <select id={id} aria-describedby={`${id}-notes`} value={overlap} onChange={(e) => setOverlap(Number(e.target.value))}>
          {overlaps.map(([seconds, word]) => (
            <option key={seconds} value={seconds}>
              {word}
            </option>
          ))}
        </select>
      </Field>
      <FormError error={change.error} shown={() => false} />
    </Dialog>
  )
}

function Revoke({ agent, onClose }: { agent: Agent; onClose: () => void }) {
  const send = async () => accepted((await ask(RevokeAgent, { input: { agentId: agent.id } })).revokeAgent)
  return (
    <Confirm title={`Revoke ${agent.name}`} submit="Revoke" done={`${agent.name} is revoked.`} send={send} onClose={onClose}>
      <p>Its connections are cut off at once, permanently. {agent.environments.length > 0 && `Nothing can be rolled out to ${agent.environments.map(displayed).join(', ')} until another agent is named there.`}</p>
    </Confirm>
  )
}

function RevokeKey({ agent, agentKey, onClose }: { agent: Agent; agentKey: Key; onClose: () => void }) {
  const send = async () => accepted((await ask(RevokeAgentKey, { input: { keyId: agentKey.id } })).revokeAgentKey)
  return (
    <Confirm title={`Revoke a key of ${agent.name}`} submit="Revoke" done="The key is revoked." send={send} onClose={onClose}>
      <p>
        The connections that <code>{agentKey.publicKey.slice(0, 12)}…</code> has opened are cut off at once.
      </p>
    </Confirm>
  )
}
