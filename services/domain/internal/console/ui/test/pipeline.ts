/// <reference types="node" />
// A pipeline that has every member that its schema knows, made from the schema, and at each place one that nobody knows yet.
import { readFileSync } from 'node:fs'
import { isRecord, resolve, typeOf, type Json, type Schema, type SchemaObject } from '../src/form/schema'

export const flow = JSON.parse(readFileSync('../../../../../pkg/flow/flow.json', 'utf8')) as SchemaObject

const deepest = 9

/** The members that a schema knows, whatever conditions they have. */
function members(schema: SchemaObject): Record<string, SchemaObject> {
  const all: Record<string, SchemaObject> = {}
  for (const part of [schema.properties, ...[...(schema.allOf ?? []), schema.then, schema.else].map((p) => conditional(p ?? true))]) {
    for (const [name, m] of Object.entries(part ?? {})) {
      const is = resolve(flow, m)
      if (is !== false) all[name] = { ...all[name], ...(is === true ? {} : is) }
    }
  }
  return all
}

function conditional(part: Schema): Record<string, Schema> {
  const is = resolve(flow, part)
  return typeof is === 'boolean' ? {} : members(is)
}

/** The schemas of a list's items: one for each type of step, one otherwise. */
function kinds(items: SchemaObject): Array<SchemaObject & { of?: unknown }> {
  const branches = (items.allOf ?? []).flatMap((b) => {
    const is = typeof b === 'boolean' ? true : resolve(flow, b.if ?? true)
    const type = typeof is === 'boolean' ? undefined : is.properties?.type
    const then = typeof b === 'boolean' ? true : resolve(flow, b.then ?? true)
    return isRecord(type) && typeof then !== 'boolean' ? [{ ...then, type: 'object', properties: { ...then.properties, type: { const: type.const } } }] : []
  })
  return items.properties?.type && branches.length > 0 ? branches : [items]
}

function sample(schema: Schema, depth: number): unknown {
  const s = resolve(flow, schema)
  if (typeof s === 'boolean') return s ? { any: ['thing'] } : undefined
  if (s.const !== undefined) return s.const
  if (s.enum) return s.enum.at(-1)
  switch (typeOf(s)) {
    case 'object': {
      const known = Object.entries(members(s)).map(([name, m]) => [name, depth < deepest ? sample(m, depth + 1) : undefined] as const)
      const more = isRecord(s.additionalProperties) ? { 'made-up': depth < deepest ? sample(s.additionalProperties, depth + 1) : null } : {}
      return { ...Object.fromEntries(known.filter(([, v]) => v !== undefined)), ...more, 'x-newer': { kept: [1, null, { deep: true }] } }
    }
    case 'array': {
      const items = resolve(flow, s.items ?? true)
      return depth >= deepest ? [] : typeof items === 'boolean' ? ['any'] : kinds(items).map((k) => sample(k, depth + 1))
    }
    case 'integer':
    case 'number':
      return Math.max(s.minimum ?? 0, 7)
    case 'boolean':
      return true
    case 'string':
      return 'text'
    default:
      return ['any']
  }
}

export const everything = (): Json & { steps: Json[] } => sample(flow, 0) as Json & { steps: Json[] }

/** The names of all members that a schema declares, conditions aside. */
export function declared(schema: unknown): Set<string> {
  if (Array.isArray(schema)) return new Set(schema.flatMap((s) => [...declared(s)]))
  if (!isRecord(schema)) return new Set()
  const { properties, if: _, $defs, ...rest } = schema
  const own = Object.entries(isRecord(properties) ? properties : {}).filter(([, m]) => m !== false)
  const parts = [...own.map(([, m]) => m), ...Object.values(isRecord($defs) ? $defs : {}), ...Object.values(rest)]
  return new Set([...own.map(([name]) => name), ...parts.flatMap((s) => [...declared(s)])])
}

export function namesIn(value: unknown): Set<string> {
  if (Array.isArray(value)) return new Set(value.flatMap((v) => [...namesIn(v)]))
  return new Set(isRecord(value) ? Object.entries(value).flatMap(([name, v]) => [name, ...namesIn(v)]) : [])
}
