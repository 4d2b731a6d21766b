// Issue 18, item 9.
import { expect, test } from 'vitest'
import { lanesOf, lookOf, titleOf, took, type Step, type Timeline } from '../src/logic/timeline'

const at = (second: number) => new Date(Date.parse('2026-11-24T12:00:00Z') + second * 1000).toISOString()
const step = (s: Partial<Step>): Step => ({
  sequence: 1, branch: 0, kind: 'run', name: '', position: '', beganAt: at(0), endedAt: at(1), until: null, input: '', inputTruncated: false, output: '', outputTruncated: false, code: '', child: '', attempt: 0, retriesCount: 0, retries: [], ...s,
})

test('steps are bars in the lanes of their branches, and what is open ends now', () => {
  const timeline: Timeline = {
    branches: [{ branch: 0, parent: -1, beganAt: at(0), endedAt: at(1) }, { branch: 1, parent: 0, beganAt: at(1), endedAt: null }],
    steps: [step({}), step({ sequence: 0, branch: 1, kind: 'sleep', beganAt: at(1), endedAt: null }), step({ sequence: 3, branch: -1, kind: 'failed', beganAt: at(2), endedAt: at(2) })],
    earlier: false, gap: '', inputs: true,
  }
  const { lanes, from, to } = lanesOf(timeline, Date.parse(at(4)))
  expect([from, to]).toEqual([Date.parse(at(0)), Date.parse(at(4))])
  expect(lanes.map((l) => [l.branch, l.parent, l.bars.map((b) => [b.left, b.width, b.look, b.open])])).toEqual([
    [0, -1, [[0, 25, 'call', false], [50, 0, 'failed', false]]],
    [1, 0, [[25, 75, 'wait', true]]],
  ])
})

test('a run of one moment has a width', () => {
  const { from, to } = lanesOf({ branches: [], steps: [step({ endedAt: at(0) })], earlier: false, gap: '', inputs: false }, 0)
  expect(to - from).toBeGreaterThan(0)
})

test('steps have names, and differ by kind', () => {
  expect([titleOf({ kind: 'run', name: 'git.commit' }), titleOf({ kind: 'sleep', name: '' })]).toEqual(['run git.commit', 'sleep'])
  expect([lookOf({ kind: 'run', code: '' }), lookOf({ kind: 'run', code: 'timeout' }), lookOf({ kind: 'print', code: '' })]).toEqual(['call', 'failed', 'note'])
  expect([0, 12.4, 3400, 125_000, 3_900_000, 360_000_000].map(took)).toEqual(['0 ms', '12 ms', '3.4 s', '2 min 5 s', '1 h 5 min', '4 d 4 h'])
})

test('what begins at about the same time is drawn next to each other', () => {
  const mark = (sequence: number, second: number) => step({ sequence, kind: 'start', beganAt: at(second), endedAt: at(second) })
  const steps = [mark(1, 1), mark(2, 1), mark(3, 1.1), step({ sequence: 4, beganAt: at(1), endedAt: at(11) }), mark(5, 6)]
  const { lanes } = lanesOf({ branches: [], steps, earlier: false, gap: '', inputs: true }, Date.parse(at(11)))
  expect(lanes[0]?.bars.map((b) => b.place)).toEqual(['0%', 'max(0%, 0% + 0.5rem)', 'max(1%, 0% + 1rem, 0% + 0.5rem)', '0%', '50%'])
})
