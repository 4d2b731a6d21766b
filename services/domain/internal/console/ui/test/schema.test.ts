import { describe, expect, test } from 'vitest'
import { blank, fields, prune, validate, withDefaults, type Schema } from '../src/form/schema'
import { boats, functions, machines } from './drivers'

const names = (schema: Schema, value: unknown) => fields(schema, schema, value).map((f) => f.name)
const wrong = (schema: Schema, value: unknown) => validate(schema, schema, value).map((f) => `${f.path.join('/')}: ${f.message}`)

describe('what is shown and what is valid follow from the same conditions', () => {
  test('a condition hides what its branch refuses', () => {
    expect(names(functions, { runtime: 'managed', public: false })).toEqual(['runtime', 'public'])
    expect(names(functions, { runtime: 'container', public: true })).toEqual(['runtime', 'public', 'image', 'registry', 'domain'])
    expect(names(functions, { runtime: 'container', registry: 'own' })).toEqual(['runtime', 'public', 'image', 'registry', 'secret_name'])
  })
  test('what is hidden is not sent, and what depended on it neither', () => {
    const before = { runtime: 'managed', public: false, image: 'x', registry: 'own', secret_name: 's' }
    expect(prune(functions, functions, before)).toEqual({ runtime: 'managed', public: false })
    expect(wrong(functions, before)).toEqual(['image: This must not be set.', 'registry: This must not be set.'])
    expect(wrong(functions, prune(functions, functions, before))).toEqual([])
  })
  test('a branch makes fields required', () => {
    expect(wrong(functions, { runtime: 'container', public: true })).toEqual(['image: Required.', 'registry: Required.', 'domain: Required.'])
    expect(fields(functions, functions, { runtime: 'container' }).filter((f) => f.required).map((f) => f.name)).toEqual(['runtime', 'public', 'image', 'registry'])
  })
  test('every value that is pruned and valid has only fields that are shown', () => {
    const options = { runtime: ['managed', 'container', undefined], public: [true, false, undefined], image: ['i', undefined], registry: ['own', 'shared', undefined], secret_name: ['s', undefined], domain: ['a.b', undefined] }
    let values: Array<Record<string, unknown>> = [{}]
    for (const [name, all] of Object.entries(options)) values = values.flatMap((v) => all.map((o) => ({ ...v, [name]: o })))
    let valid = 0
    for (const value of values) {
      const sent = prune(functions, functions, value) as Record<string, unknown>
      expect(Object.keys(sent).filter((k) => !names(functions, sent).includes(k))).toEqual([])
      expect(prune(functions, functions, sent)).toEqual(sent)
      expect(wrong(functions, sent).filter((w) => w.includes('must not'))).toEqual([])
      if (wrong(functions, sent).length === 0) valid++
    }
    expect(valid).toBeGreaterThan(5)
  })
})

describe('defaults', () => {
  test('of fields that are shown', () => {
    expect(withDefaults(boats, boats, {})).toEqual({ knots: 12 })
    expect(withDefaults(functions, functions, {})).toEqual({ runtime: 'managed', public: false })
    expect(withDefaults(machines, machines, {})).toEqual({ hosts: [{}], login: { port: 22 } })
    expect(withDefaults(boats, boats, { knots: 3 })).toEqual({ knots: 3 })
  })
  test('of a new item', () => {
    expect(blank(machines, { $ref: '#/$defs/host' })).toEqual({})
    expect(blank(machines, { type: 'boolean' })).toBe(false)
  })
})

describe('validation', () => {
  test.each([
    [boats, { harbour: 'x', size: 'small', knots: 12 }, []],
    [boats, { harbour: '', size: 'small', knots: 12 }, ['harbour: Required.']],
    [boats, { harbour: 'x', size: 'huge', knots: 41 }, ['size: Choose one of the options.', 'knots: At most 40.']],
    [boats, { harbour: 'x', size: 'small', knots: 1.5 }, ['knots: Expected a whole number.']],
    [boats, { harbour: 'x', size: 'small', knots: 2, extra: 1 }, ['extra: This must not be set.']],
    [machines, { hosts: [], login: { user: 'me' } }, ['hosts: At least 1.']],
    [machines, { hosts: [{ name: 'A' }], login: {} }, ['login/user: Required.', 'hosts/0/name: This does not have the form that is expected here.']],
    [machines, { hosts: [{ name: 'abcdefghi' }], login: { user: 'me' } }, ['hosts/0/name: At most 8 characters.']],
    [machines, { hosts: [{ name: 'a' }], login: { user: 'me' }, labels: { a: 1 } }, ['labels/a: Expected text.']],
  ] as Array<[Schema, unknown, string[]]>)('%#', (schema, value, expected) => {
    expect(wrong(schema, value).sort()).toEqual([...expected].sort())
  })
  test('a reference that leads round and a pattern of another dialect refuse nothing', () => {
    expect(wrong(machines, { hosts: [{ name: 'a' }], login: { user: 'me' }, cycle: 3 })).toEqual([])
    expect(validate(true, { type: 'string', pattern: '(?i)x' }, 'y')).toEqual([])
  })
})
