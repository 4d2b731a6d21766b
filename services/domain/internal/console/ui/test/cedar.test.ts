import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { complete, vocabulary } from '../src/logic/cedar'

const schema = (name: string) => readFileSync(new URL(`../../../../../../pkg/policy/${name}.cedarschema`, import.meta.url), 'utf8')
const known = vocabulary([schema('schema'), schema('calls')], ['id', 'message'])
const labels = (before: string) => complete(known, before).choices.map((c) => c.label)

test('the schemas of the product are read whole', () => {
  expect(known.actions).toEqual(['environment.enter', 'gate.pass', 'rollout.create', 'rollout.rollback', 'function.call'])
  expect([...known.entities.keys()]).toEqual(['Group', 'User', 'Machine', 'System', 'Application', 'Environment', 'Driver', 'Agent', 'Version', 'Rollout', 'Function'])
  expect(known.context.map((a) => a.name)).toEqual(
    expect.arrayContaining(['gate', 'weight', 'rollback', 'versionSet', 'facts', 'previous', 'approvals', 'time', 'environments', 'run', 'argument', 'omitted']),
  )
  const facts = known.context.find((a) => a.name === 'facts')!
  expect(facts.attributes.find((a) => a.name === 'buildLevel')).toMatchObject({ type: 'Long', optional: true, doc: 'The lowest SLSA level, 1 to 4.' })
  for (const name of ['signedBy', 'revisions', 'sbomFormats']) expect(facts.attributes.find((a) => a.name === name)).toMatchObject({ type: 'Set<String>', optional: true })
})

test('what can follow is what the schema has there', () => {
  expect(labels('permit (principal, action == Action::"env')).toEqual(known.actions)
  expect(labels('when { context.')).toContain('versionSet')
  expect(labels('when { context.facts has si')).toContain('signedBy')
  expect(labels('when { context.approvals.p')).toEqual(['people', 'groups'])
  expect(labels('when { context.previous.environment.')).toEqual(['tier', 'labels', 'driver', 'agents'])
  expect(labels('when { resource.')).toContain('tier')
  expect(labels('@me')).toEqual(['id', 'message'])
  expect(labels('fo')).toContain('forbid')
  expect(complete(known, 'when { context.facts has si').replaces).toBe(2)
})

test('names of what the organization has are offered where they stand', () => {
  const names = new Map([['Environment', ['staging', 'production', 'a"b']], ['Group', ['dba', 'ops']], ['Function', ['http.request']]])
  const with_ = vocabulary([schema('schema')], ['group'], names)
  const offered = (before: string) => complete(with_, before).choices.map((c) => c.label)
  expect(offered('forbid (principal, action, resource == Environment::"')).toEqual(['staging', 'production'])
  expect(offered('resource == Environment::"PRO')).toEqual(['production'])
  expect(complete(with_, 'resource == Environment::"pro').replaces).toBe(3)
  expect(offered('@require("approval") @group("d')).toEqual(['dba'])
  expect(offered('principal in Group::"')).toEqual(['dba', 'ops'])
  expect(offered('resource == Function::"http.')).toEqual(['http.request'])
  expect(offered('resource == User::"1')).toEqual([])
  expect(offered('@message("Environment')).toEqual([])
})

test('agents, drivers and services are offered by name', () => {
  const names = new Map([['Agent', ['eu-1', 'us-1']], ['Driver', ['argo-rollouts@1', 'git@1']], ['Service', ['api', 'app "x"', 'web']]])
  const with_ = vocabulary([schema('schema')], [], names)
  const offered = (before: string) => complete(with_, before).choices.map((c) => `${c.label}, ${c.detail}`)
  expect(offered('resource.agents.contains(Agent::"eu')).toEqual(['eu-1, agent'])
  expect(offered('resource.driver == Driver::"')).toEqual(['argo-rollouts@1, driver', 'git@1, driver'])
  expect(offered('context.versionSet.services.contains("')).toEqual(['api, service', 'web, service'])
  expect(offered('context.change.services.containsAny(["api", "W')).toEqual(['web, service'])
  expect(complete(with_, 'context.change.services.containsAll([ "api","we').replaces).toBe(2)
  expect(offered('context.versionSet.versions.contains("')).toEqual([]) // texts that are no names of services
  expect(offered('context.versionSet.services.contains("api", "')).toEqual([])
  expect(offered('context.versionSet.services.containsAny(["a\\"p", "w')).toEqual(['web, service'])
})

test('nothing is offered where anything may be written', () => {
  expect(labels('// context.')).toEqual([])
  expect(labels('@message("context.')).toEqual([])
  expect(labels('when { context.nothing.')).toEqual([])
  expect(labels('')).toEqual([])
})

test('what is no schema makes no vocabulary, and ends', () => {
  for (const text of ['', '{', 'type X = {', 'action "a', 'entity', 'context: { a: Set<', 'type = = = { ? : }']) {
    expect(vocabulary([text], []).annotations).toEqual([])
  }
})
