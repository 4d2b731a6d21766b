// Chains (D58, R4-12): one graph with a row for each block, which says where each application stands, and is cancelled as a whole.
import { renderToStaticMarkup } from 'react-dom/server'
import { MemoryRouter } from 'react-router'
import { describe, expect, test } from 'vitest'
import type { ChainFields } from '../src/api/generated'
import { ChainGraph } from '../src/parts/chains'

const at = '2026-11-23T04:00:00Z'
const node = (name: string, block: number, more: object = {}) => ({ application: { id: name, name }, block, state: 'WAITING', reason: '', rollout: null, chains: [], ...more })
const drawn = (more: object = {}) =>
  renderToStaticMarkup(
    <MemoryRouter>
      <ChainGraph
        chain={
          {
            id: 'chain_1', application: { id: 'application_1', name: 'shop' }, rollout: { id: 'rollout_2' }, parent: null, state: 'RUNNING', reason: '', block: 1, blocks: 2, beganAt: at, endedAt: null,
            nodes: [
              node('search', 1, { state: 'COMPLETED', rollout: { id: 'rollout_3' }, chains: [{ id: 'chain_2', application: { name: 'search' }, state: 'RUNNING', nodes: [{ application: { name: 'index' }, block: 1, state: 'RUNNING', rollout: { id: 'rollout_9' } }] }] }),
              node('mail', 1, { state: 'FAILED', reason: 'rollout_4 failed', rollout: { id: 'rollout_4' } }),
              node('reports', 2),
            ],
            ...more,
          } as ChainFields
        }
        cancel={() => undefined}
      />
    </MemoryRouter>,
  )

describe('a chain', () => {
  test('has a row for each block, with each application in its own', () => {
    const [, first = '', second = ''] = drawn().split(/Block \d of 2<\/p>/)
    expect(first).toContain('search')
    expect(first).toContain('mail')
    expect(first).not.toContain('reports')
    expect(second).toContain('reports')
    expect(second).toContain('Waits for its block')
  })
  test('says where each stands and why, with its rollout', () => {
    expect(drawn()).toContain('href="/rollouts/rollout_4"')
    expect(drawn()).toContain('Failed')
    expect(drawn()).toContain('rollout_4 failed')
  })
  test('shows what follows in its turn', () => {
    expect(drawn()).toMatch(/followed in its turn by.*href="\/rollouts\/rollout_9"[^>]*>index<\/a> \(running\)/)
  })
  test('is cancelled while it runs, and not after', () => {
    expect(drawn()).toContain('Cancel the chain')
    expect(drawn({ state: 'STOPPED', reason: 'mail failed', endedAt: at })).not.toContain('Cancel the chain')
    expect(drawn({ state: 'STOPPED', reason: 'mail failed', endedAt: at })).toContain('Stopped')
  })
})
