import { expect, test } from 'vitest'
import type { JournalRow } from '../src/api/generated'
import { editsOf } from '../src/logic/edits'
import { readPipeline } from '../src/logic/pipeline'
import { leftParts, take, takeJobs } from '../src/logic/skips'

const row = (reason: string, event = 'skip') => ({ event, reason }) as JournalRow

test('R4-26: a part that is left out has its reason, one that may not be left out has none, and two of one name have one each', () => {
  const [soak, short, other, plain, job, deploy] = readPipeline({
    steps: [
      { type: 'pause', name: 'soak', duration: 60, skip_on: { paths: ['docs/**'] } },
      { type: 'pause', duration: 5, skip_on: { paths: ['docs/**'] } },
      { type: 'analysis', skip_on: { paths: ['docs/**'] } },
      { type: 'pause', duration: 5 },
      { type: 'job', environment: 'staging', job: { name: 'smoke', skip_on: { paths: ['docs/**'] } } },
      { type: 'deploy', environment: 'staging', before: [{ name: 'migrate' }], after: 'nonsense' },
    ],
  })
  const left = leftParts([
    row('soak is skipped: all changed files match docs/**'), row('staging has set-1 already; nothing is deployed there'),
    row('the pause of 5 seconds is skipped: because'), row('the analysis is skipped: so'), row('the job smoke in staging is skipped: two'),
    row('the job migrate in staging is skipped: three'), row('soak is skipped: no', 'create'),
  ])
  expect(left).toHaveLength(5)
  expect(take(plain!, left)).toBeNull()
  expect(take(soak!, left)).toBe('all changed files match docs/**')
  expect(take(soak!, left)).toBeNull()
  expect(take(short!, left)).toBe('because')
  expect(take(other!, left)).toBe('so')
  if (deploy?.kind !== 'deploy') throw new Error('no deployment')
  expect(takeJobs(deploy, left)).toEqual([{ what: 'the job migrate in staging', why: 'three' }])
  expect(take(job!, left)).toBe('two')
  expect(left).toEqual([])
})

test('R4-28: what a trigger edits, whatever its configuration has', () => {
  expect(editsOf({})).toBeNull()
  expect(editsOf({ edit: 7 })).toEqual({ repository: '', branch: '', proposes: false, files: [] })
  expect(editsOf({ edit: { repository: 'r', branch: 'b', pull_request: true, files: [{ path: 'p', hcl: 'a.b', from: 'x' }, { path: 'q', from: 'y' }] } })).toEqual({
    repository: 'r', branch: 'b', proposes: true, files: [{ path: 'p', place: 'HCL a.b', from: 'x' }, { path: 'q', place: '', from: 'y' }],
  })
})
