/// <reference types="node" />
// What the renderer takes and what the server takes is the same: agreement.json holds what it says here of generated values, and
// forms_test.go of the service holds the server's validator against that file. UPDATE=1 writes it anew.
import { readFileSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { fields, isRecord, prune, validate, type Schema } from '../src/form/schema'
import { cases, casesOf, schemas } from './agreement'

const file = 'test/agreement.json'

function written(): string {
  const parts = Object.entries(schemas).map(([name, schema]) => {
    const lines = cases(name).map((c) => `    ${JSON.stringify(c)}`)
    return `  {"name": ${JSON.stringify(name)}, "schema": ${JSON.stringify(schema)}, "cases": [\n${lines.join(',\n')}\n  ]}`
  })
  return `[\n${parts.join(',\n')}\n]\n`
}

test('the file is what the renderer says', () => {
  if (process.env.UPDATE) writeFileSync(file, written())
  expect(readFileSync(file, 'utf8') === written(), 'UPDATE=1 npx vitest run test/agreement.test.ts writes it').toBe(true)
})

test.each(Object.keys(schemas))('%s: what is hidden is refused, and what is sent has nothing hidden', (name) => {
  const schema = schemas[name] as Schema
  const said = { right: 0, hidden: 0 }
  for (const { value, valid } of cases(name)) {
    if (valid) said.right++
    const sent = prune(schema, schema, value)
    if (!isRecord(value) || !isRecord(sent)) continue
    const gone = Object.keys(value).filter((k) => !(k in sent))
    if (gone.length > 0) {
      said.hidden++
      expect(valid, JSON.stringify(value)).toBe(false)
    }
    const shown = new Set(fields(schema, schema, sent).map((f) => f.name))
    const refused = validate(schema, schema, sent).filter((f) => f.message === 'This must not be set.' && f.path.length === 1 && shown.has(f.path[0] ?? ''))
    expect(refused, JSON.stringify(sent)).toEqual([])
  }
  expect(said.right).toBeLessThan(casesOf)
})

test('the values are of every sort', () => {
  const all = Object.keys(schemas).flatMap(cases)
  expect(all.filter((c) => c.valid).length).toBeGreaterThan(40)
  expect(all.filter((c) => !c.valid).length).toBeGreaterThan(200)
})
