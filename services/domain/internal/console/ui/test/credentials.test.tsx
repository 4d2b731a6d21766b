// Credentials (D56): the forms are a table, and no value is ever shown.
import { renderToStaticMarkup } from 'react-dom/server'
import { MemoryRouter } from 'react-router'
import { describe, expect, test } from 'vitest'
import type { CredentialFields } from '../src/api/generated'
import { formOf, forms, inputOf } from '../src/logic/credentials'
import { CredentialList } from '../src/pages/credentials'

const credential = (more: Partial<CredentialFields> = {}): CredentialFields => ({
  name: 'images', kind: 'REGISTRY', urlPrefixes: ['https://registry.example.com/shop'], username: 'robot', header: '', forge: '', version: 2, reference: '', sealed: true, state: 'LIVE', expiresAt: null,
  revokedAt: null, author: 'Ada', changedAt: '2026-11-23T04:00:00Z', oauth2: null, certificate: null, githubApp: null, sshKey: null, ecr: null, gar: null, acr: null, ...more,
})

const listed = (all: CredentialFields[], configures = true) =>
  renderToStaticMarkup(
    <MemoryRouter>
      <CredentialList all={all} configures={configures} changed={() => Promise.resolve()} />
    </MemoryRouter>,
  )

const form = (key: string) => forms.find((f) => f.key === key) as (typeof forms)[number]

describe('the list of credentials', () => {
  test('says what each is, where it goes and who changed it, and not its value', () => {
    const html = listed([credential(), credential({ name: 'hub', sealed: false, reference: 'vault:secret/data/shop#key' })])
    for (const part of ['images', 'Registry: user name and password', 'https://registry.example.com/shop', 'sealed', 'version 2', 'Ada', 'vault:secret/data/shop#key', 'Rotate images']) {
      expect(html).toContain(part)
    }
  })
  test('offers changes to those who may configure only, and none of what was revoked', () => {
    expect(listed([credential()], false)).not.toContain('<button')
    const html = listed([credential({ state: 'REVOKED', sealed: false })])
    expect(html).not.toContain('Rotate')
    expect(html).toContain('deleted')
  })
  test('says how to begin when there are none', () => {
    expect(listed([])).toContain('No credentials yet')
    expect(listed([], false)).toContain('Members who may configure')
  })
})

describe('the forms of credentials', () => {
  test('have keys of their own, and each credential is of one form at most', () => {
    expect(new Set(forms.map((f) => f.key)).size).toBe(forms.length)
    const kinds: Partial<CredentialFields>[] = [
      {}, { username: '' }, { ecr: { accessKeyId: 'A', region: 'r', roleArn: '' } }, { gar: { tokenUrl: '' } }, { acr: { tenantId: 't', clientId: 'c' } }, { kind: 'GIT' },
      { kind: 'GIT', githubApp: { appId: '1', installationId: '2' } }, { kind: 'GIT', sshKey: { knownHosts: 'h' } }, { kind: 'HTTP' }, { kind: 'HTTP', username: '' }, { kind: 'HTTP', username: '', header: 'X' },
      { kind: 'HTTP', username: '', oauth2: { tokenUrl: 'u', clientId: 'c' } }, { kind: 'HTTP', username: '', certificate: { ca: '' } },
    ]
    for (const kind of kinds) expect(forms.filter((f) => f.is(credential(kind)))).toHaveLength(1)
    expect(new Set(kinds.map((k) => formOf(credential(k))?.key)).size).toBe(forms.length)
  })
  test('become the input of the API, without what was left out', () => {
    expect(inputOf(form('ecr'), { 'ecr/accessKeyId': ' AKIA ', 'ecr/region': 'eu-central-1', 'ecr/roleArn': ' ' })).toEqual({ ecr: { accessKeyId: 'AKIA', region: 'eu-central-1' } })
    expect(inputOf(form('gar'), {})).toEqual({ gar: {} })
    expect(inputOf(form('oauth2'), { 'oauth2/tokenUrl': 'u', 'oauth2/clientId': 'c', 'oauth2/scopes': 'read\n\n write ' })).toEqual({
      oauth2: { tokenUrl: 'u', clientId: 'c', scopes: ['read', 'write'], send: 'header' },
    })
    expect(inputOf(form('git'), { username: 'bot' })).toEqual({ username: 'bot' })
    expect(inputOf(form('registry'), { username: 'robot' })).toEqual({ username: 'robot' })
  })
})
