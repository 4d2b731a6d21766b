import { expect, test } from 'vitest'
import { latest, values } from '../src/logic/decision'
import { policed } from '../src/logic/passages'
import { claim, searched, states } from '../src/logic/provenance'

test('what is searched for is a digest, a package URL, or a component with a version', () => {
  expect(searched(` sha256:${'a'.repeat(64)} `)).toEqual({ digest: `sha256:${'a'.repeat(64)}` })
  expect(searched('b'.repeat(40))).toEqual({ digest: 'b'.repeat(40) })
  expect(searched('log4j-core@2.14.1')).toEqual({ name: 'log4j-core', version: '2.14.1' })
  expect(searched('@angular/core')).toEqual({ name: '@angular/core', version: '' })
  expect(searched('@angular/core@17')).toEqual({ name: '@angular/core', version: '17' })
  expect(searched('pkg:maven/a/b@1')).toEqual({ name: 'pkg:maven/a/b@1', version: '' })
})

test('evidence says what it states', () => {
  expect([null, 'https://sigstore.dev/cosign/sign/v1'].map(states)).toEqual(['a signature', 'a signature'])
  expect(states('https://slsa.dev/provenance/v1')).toBe('how it was built')
  expect(['https://cyclonedx.org/bom', 'https://spdx.dev/Document'].map(states)).toEqual(['what it contains', 'what it contains'])
  expect(states('https://openvex.dev/ns/v0.2.0')).toBe('which vulnerabilities do not affect it')
  expect(states('https://in-toto.io/attestation/vulns/v0.1')).toBe('which vulnerabilities it has')
  expect(states('https://example.com/x')).toBe('https://example.com/x')
})

test('what an image claims is shown as text', () => {
  expect(claim({ source: 'https://git.example.com/shop/api', revision: '1a2b3c4' })).toBe('https://git.example.com/shop/api at 1a2b3c4')
  expect(claim({ source: 'https://git.example.com/shop/api', revision: null })).toBe('https://git.example.com/shop/api')
  expect(claim({ source: null, revision: '1a2b3c4' })).toBe('commit 1a2b3c4')
})

test('the values of a request have their paths', () => {
  expect(values({ action: 'environment.enter', weight: 0, facts: { signed_by: ['release', 'ci'], critical: [] }, environments: [{ name: 'prod' }], gone: null })).toEqual([
    ['action', 'environment.enter'],
    ['weight', '0'],
    ['facts.signed_by', 'release, ci'],
    ['facts.critical', 'none'],
    ['environments[1].name', 'prod'],
  ])
})

test('the latest decision about each passage counts', () => {
  const all = [{ gateId: 'a', n: 3 }, { gateId: null, n: 2 }, { gateId: 'a', n: 1 }]
  expect([...latest(all)].map(([gate, d]) => [gate, d.n])).toEqual([['a', 3], [null, 2]])
})

test('passages that policies decided about are those of the journal, and those that wait because of them', () => {
  const row = (gateId: string, kind: string) => ({ gateId, conditions: [{ kind }] }) as never
  const journal = [row('staging', 'POLICY'), row('release', 'NOTHING_ASKED')]
  const rollout = { openGates: [{ gateId: 'production/policy/rules/dba' }, { gateId: 'manual' }], waitingOn: [{ kind: 'POLICY', gateId: 'production/50' }, { kind: 'FREEZE', gateId: 'qa' }] }
  expect([...policed(rollout, journal)]).toEqual(['staging', 'production/50', 'production'])
})
