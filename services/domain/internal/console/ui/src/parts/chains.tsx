// Chains: the rollouts of other applications that follow one, block after block, as one graph that is cancelled as a whole.
import { useState } from 'react'
import { Link } from 'react-router'
import { accepted, ask } from '../api/client'
import { ApplicationChains, CancelChain, RolloutChains, type ChainFields } from '../api/generated'
import { useAsk } from '../api/hooks'
import { Confirm } from './confirm'
import { sentence } from './form'
import { Icon } from './icon'
import { Chip } from './state'
import { Ago } from './time'

type Node = ChainFields['nodes'][number]

interface Look {
  tone: 'quiet' | 'busy' | 'wait' | 'good' | 'bad'
  icon: string
  word: string
}

const states: Record<ChainFields['state'], Look> = {
  RUNNING: { tone: 'busy', icon: 'moving', word: 'Running' },
  COMPLETED: { tone: 'good', icon: 'completed', word: 'Completed' },
  STOPPED: { tone: 'bad', icon: 'failed', word: 'Stopped' },
  CANCELLED: { tone: 'quiet', icon: 'cancelled', word: 'Cancelled' },
}

const nodeStates: Record<Node['state'], Look> = {
  WAITING: { tone: 'quiet', icon: 'clock', word: 'Waits for its block' },
  PENDING: { tone: 'wait', icon: 'pending', word: 'Not decided yet' },
  QUEUED: { tone: 'wait', icon: 'pending', word: 'Queued' },
  RUNNING: { tone: 'busy', icon: 'moving', word: 'Running' },
  COMPLETED: { tone: 'good', icon: 'completed', word: 'Completed' },
  UNCHANGED: { tone: 'good', icon: 'completed', word: 'Nothing to roll out' },
  FAILED: { tone: 'bad', icon: 'failed', word: 'Failed' },
  SKIPPED: { tone: 'quiet', icon: 'paused', word: 'Does not follow' },
  STOPPED: { tone: 'quiet', icon: 'cancelled', word: 'Not reached' },
  CANCELLED: { tone: 'quiet', icon: 'cancelled', word: 'Cancelled' },
}

const running = (chains: { state: string }[]) => chains.some((c) => c.state === 'RUNNING')

/** The latest chains that rollouts of an application began; nothing if there were none. */
export function ChainsOfApplication({ name }: { name: string }) {
  const query = useAsk(ApplicationChains, { name }, { live: (d) => running(d.application?.chains ?? []) })
  return <Chains chains={query.data?.application?.chains ?? []} changed={() => query.refetch()} />
}

/** The chains that a rollout began; nothing if there are none. */
export function ChainsOfRollout({ id }: { id: string }) {
  const query = useAsk(RolloutChains, { id }, { live: (d) => running(d.rollout?.chains ?? []) })
  return <Chains chains={query.data?.rollout?.chains ?? []} changed={() => query.refetch()} />
}

function Chains({ chains, changed }: { chains: ChainFields[]; changed: () => Promise<unknown> }) {
  const [cancelling, setCancelling] = useState<ChainFields | null>(null)
  if (chains.length === 0) return null
  return (
    <section className="card" aria-labelledby="chains">
      <h2 id="chains">What follows</h2>
      {chains.map((c) => (
        <ChainGraph key={c.id} chain={c} cancel={() => setCancelling(c)} />
      ))}
      {cancelling && (
        <Confirm
          title={`Cancel the chain that follows ${cancelling.rollout.id} of ${cancelling.application.name}`}
          submit="Cancel the chain"
          tone="danger"
          reasoned
          done="The chain is cancelled."
          onClose={() => setCancelling(null)}
          send={async (reason) => {
            accepted((await ask(CancelChain, { input: { chainId: cancelling.id, reason } })).cancelChain)
            await changed()
          }}
        >
          <p>Later blocks do not begin, its rollouts in queues are taken out, and those under way are cancelled, with the chains that they began. What is deployed stays.</p>
        </Confirm>
      )}
    </section>
  )
}

/** One chain, a row for each block. */
export function ChainGraph({ chain, cancel }: { chain: ChainFields; cancel: () => void }) {
  const blocks = Array.from({ length: chain.blocks }, (_, i) => chain.nodes.filter((n) => n.block === i + 1))
  const look = states[chain.state]
  return (
    <article className="follows" aria-label={`What follows ${chain.rollout.id}`}>
      <header className="line">
        <Chip {...look} />
        <span>
          after <Link to={`/rollouts/${chain.rollout.id}`}>{chain.rollout.id}</Link> of <bdi>{chain.application.name}</bdi>
          {chain.parent && (
            <span className="faint">
              , which a chain of <Link to={`/applications/${chain.parent.application.name}`}>{chain.parent.application.name}</Link> began
            </span>
          )}
        </span>
        <span className="faint">
          began <Ago at={chain.beganAt} />
          {chain.endedAt && (
            <>
              , ended <Ago at={chain.endedAt} />
            </>
          )}
        </span>
        {chain.state === 'RUNNING' && (
          <button type="button" onClick={cancel}>
            Cancel the chain
          </button>
        )}
      </header>
      {chain.reason && <p dir="auto">{sentence(chain.reason)}</p>}
      <ol className="blocks">
        {blocks.map((nodes, i) => (
          <li key={i} aria-label={`Block ${i + 1} of ${chain.blocks}`}>
            <p className="faint">
              Block {i + 1} of {chain.blocks}
            </p>
            <ul>
              {nodes.map((n) => (
                <li key={n.application.id}>
                  <OneNode node={n} />
                </li>
              ))}
            </ul>
          </li>
        ))}
      </ol>
    </article>
  )
}

function OneNode({ node }: { node: Node }) {
  return (
    <>
      <p className="line">
        <Link to={`/applications/${node.application.name}`}>{node.application.name}</Link> <Chip {...nodeStates[node.state]} />
        {node.rollout && <Link to={`/rollouts/${node.rollout.id}`}>{node.rollout.id}</Link>}
      </p>
      {node.reason && (
        <p className="faint" dir="auto">
          {sentence(node.reason)}
        </p>
      )}
      {node.chains.map((c) => (
        <p key={c.id} className="line faint">
          <Icon name="rollout" /> followed in its turn by{' '}
          {c.nodes.map((n, i) => (
            <span key={n.application.name}>
              {i > 0 && ', '}
              {n.rollout ? <Link to={`/rollouts/${n.rollout.id}`}>{n.application.name}</Link> : n.application.name} ({nodeStates[n.state].word.toLowerCase()})
            </span>
          ))}
        </p>
      ))}
    </>
  )
}
