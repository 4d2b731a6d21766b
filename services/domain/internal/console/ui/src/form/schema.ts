// An interpreter of the part of JSON Schema 2020-12 that drivers' schemas use. Visibility and validation read the same
// if/then/else: what an active branch refuses with `false` is not shown, and not sent (R29). The server decides.

import { humanise } from './copy'

export type Schema = boolean | SchemaObject
export interface SchemaObject {
  $ref?: string
  $defs?: Record<string, Schema>
  type?: string | string[]
  const?: unknown
  enum?: unknown[]
  default?: unknown
  required?: string[]
  properties?: Record<string, Schema>
  additionalProperties?: Schema
  items?: Schema
  minItems?: number
  maxItems?: number
  minimum?: number
  maximum?: number
  exclusiveMinimum?: number
  exclusiveMaximum?: number
  minLength?: number
  maxLength?: number
  pattern?: string
  allOf?: Schema[]
  anyOf?: Schema[]
  oneOf?: Schema[]
  not?: Schema
  if?: Schema
  then?: Schema
  else?: Schema
  /** The language of a text; only for the widget code. */
  contentMediaType?: string
  /** The kinds of credentials that a name may be of; only for the widget credential_picker. */
  credentialKind?: string | string[]
  gitlabUi?: { widget?: string }
}

export type Json = Record<string, unknown>
export interface Finding {
  path: string[]
  /** With the fields' names, made readable, where a form's labels are not known. */
  message: string
  /** The alternatives that it is about: the fields of each. */
  needed?: Alternatives
}
interface Alternatives {
  lead: string
  fields: string[][]
}

const deepest = 32

export function isRecord(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function equal(a: unknown, b: unknown): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b)
}

/** Follows a local reference; keywords beside it count too. One that leads nowhere refuses nothing here. */
export function resolve(root: Schema, schema: Schema, depth = 0): Schema {
  if (typeof schema === 'boolean' || schema.$ref === undefined || depth > deepest) return schema
  let target: unknown = schema.$ref.startsWith('#') ? root : true
  for (const part of schema.$ref.slice(1).split('/').filter(Boolean)) {
    const name = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~')
    target = isRecord(target) ? target[name] : undefined
  }
  const found = resolve(root, (target ?? true) as Schema, depth + 1)
  if (typeof found === 'boolean') return found ? { ...schema, $ref: undefined } : false
  return { ...found, ...schema, $ref: undefined }
}

export function typeOf(schema: SchemaObject): string {
  const types = Array.isArray(schema.type) ? schema.type : schema.type ? [schema.type] : []
  const first = types.find((t) => t !== 'null')
  if (first) return first
  if (schema.properties) return 'object'
  const sample = schema.enum?.[0] ?? schema.const
  if (sample !== undefined && sample !== null) return Array.isArray(sample) ? 'array' : typeof sample
  return ''
}

function isOfType(type: string, value: unknown): boolean {
  switch (type) {
    case 'object':
      return isRecord(value)
    case 'array':
      return Array.isArray(value)
    case 'integer':
      return typeof value === 'number' && Number.isInteger(value)
    case 'null':
      return value === null
    default:
      return typeof value === type
  }
}

function matches(pattern: string, value: string): boolean {
  try {
    return new RegExp(pattern, 'u').test(value)
  } catch {
    return true // a pattern of another dialect: the server knows it
  }
}

/** The schemas that speak about a value: itself, those of allOf, and the branch of each condition that is active. */
export function active(root: Schema, schema: Schema, value: unknown, depth = 0): Schema[] {
  const s = resolve(root, schema)
  if (typeof s === 'boolean' || depth > deepest) return [s]
  const more = [...(s.allOf ?? [])]
  if (s.if !== undefined) {
    const branch = validate(root, s.if, value).length === 0 ? s.then : s.else
    if (branch !== undefined) more.push(branch)
  }
  return [s, ...more.flatMap((m) => active(root, m, value, depth + 1))]
}

export interface Field {
  name: string
  schema: SchemaObject
  required: boolean
}

/** The fields of an object that are to be shown, in the order in which the schema has them. */
export function fields(root: Schema, schema: Schema, value: unknown): Field[] {
  const speakers = active(root, schema, value).filter((s) => typeof s !== 'boolean')
  const merged = new Map<string, SchemaObject | false>()
  for (const speaker of speakers) {
    for (const [name, property] of Object.entries(speaker.properties ?? {})) {
      const p = resolve(root, property)
      const before = merged.get(name)
      if (p === false || before === false) merged.set(name, false)
      else merged.set(name, { ...before, ...(p === true ? {} : p) })
    }
  }
  const required = new Set(speakers.flatMap((s) => s.required ?? []))
  return [...merged].flatMap(([name, property]) => (property === false ? [] : [{ name, schema: property, required: required.has(name) }]))
}

/** A form of its own for some fields of an object: those that it has as it is now, without the ones that are shown elsewhere. */
export function partOf(root: Schema, schema: Schema, value: unknown, elsewhere: string[]): SchemaObject {
  const shown = fields(root, schema, value).filter((f) => !elsewhere.includes(f.name))
  return {
    ...(typeof root === 'boolean' || root.$defs === undefined ? {} : { $defs: root.$defs }),
    type: 'object',
    required: shown.filter((f) => f.required).map((f) => f.name),
    properties: Object.fromEntries(shown.map((f) => [f.name, f.schema])),
  }
}

/** The fields of which a schema with alternatives needs some. */
export function choices(root: Schema, schema: Schema, value: unknown): Set<string> {
  const alternatives = active(root, schema, value).flatMap((s) => (typeof s === 'boolean' ? [] : [...(s.oneOf ?? []), ...(s.anyOf ?? [])]))
  return new Set(alternatives.flatMap((one) => (typeof one === 'boolean' ? [] : (one.required ?? []))))
}

/** The value of an object after a change of a field. A group of which nothing is left, a list that must not be empty, and an alternative that is
 * empty are not there: a schema with alternatives would take them for one. What is required stays, and what has a default, which would come back. */
export function withField(root: Schema, schema: Schema, value: Json, field: Field, next: unknown): Json {
  const counts = isRecord(next) || (Array.isArray(next) && (field.schema.minItems ?? 0) > 0) || choices(root, schema, value).has(field.name)
  const gone = counts && !field.required && given(field.schema) === undefined && isEmpty(root, field.schema, next)
  return { ...value, [field.name]: gone ? undefined : next }
}

/** Whether a value has only what a form cannot take back: boxes that are not ticked, texts and lists that are empty, and groups of these. A default
 * that was chosen is no empty value: whether a group exists may be what counts. */
function isEmpty(root: Schema, schema: SchemaObject | undefined, value: unknown): boolean {
  if (value === undefined) return true
  if (schema === undefined) return false // what no control shows, and what a text of JSON has
  const before = given(schema)
  if (before !== undefined && !equal(before, value)) return false
  if (!isRecord(value)) return value === '' || value === false || (Array.isArray(value) && value.length === 0)
  const left = prune(root, schema, value) as Json
  const known = new Map(fields(root, schema, left).map((f) => [f.name, f.schema]))
  return Object.entries(left).every(([name, v]) => isEmpty(root, known.get(name), v))
}

/** What a field has as long as nobody has set it. */
export function given(schema: SchemaObject): unknown {
  return schema.default ?? schema.const
}

/** The value without the fields that are not shown, at every depth. */
export function prune(root: Schema, schema: Schema, value: unknown, depth = 0): unknown {
  if (depth > deepest) return value
  const s = resolve(root, schema)
  if (typeof s !== 'boolean' && Array.isArray(value)) return value.map((v) => prune(root, s.items ?? true, v, depth + 1))
  if (typeof s === 'boolean' || !isRecord(value)) return value
  let kept = value
  for (let round = 0; round < deepest; round++) {
    const shown = new Map(fields(root, s, kept).map((f) => [f.name, f.schema]))
    const known = new Set(active(root, s, kept).flatMap((a) => (typeof a === 'boolean' ? [] : Object.keys(a.properties ?? {}))))
    const next = Object.fromEntries(
      Object.entries(kept).flatMap(([name, v]) => {
        if (v === undefined || (known.has(name) && !shown.has(name))) return []
        return [[name, prune(root, shown.get(name) ?? true, v, depth + 1)]]
      }),
    )
    if (equal(next, kept)) return next
    kept = next // what is gone may decide what else is
  }
  return kept
}

/** The value with the defaults of the fields that are shown. */
export function withDefaults(root: Schema, schema: Schema, value: unknown, depth = 0): unknown {
  const s = resolve(root, schema)
  if (typeof s === 'boolean' || depth > deepest || !isRecord(value)) return value
  let filled: Json = value
  for (let round = 0; round < deepest; round++) {
    const next: Json = { ...filled }
    for (const f of fields(root, s, filled)) {
      if (next[f.name] !== undefined) continue
      const first = given(f.schema)
      if (first !== undefined) next[f.name] = first
      else if (f.required && typeOf(f.schema) === 'boolean') next[f.name] = false
      else if (f.required && typeOf(f.schema) === 'object') next[f.name] = withDefaults(root, f.schema, {}, depth + 1)
      else if (f.required && typeOf(f.schema) === 'array') next[f.name] = blanks(root, f.schema, depth)
    }
    if (equal(next, filled)) break
    filled = next
  }
  return filled
}

function blanks(root: Schema, schema: SchemaObject, depth: number): unknown[] {
  return Array.from({ length: Math.min(schema.minItems ?? 0, 20) }, () => blank(root, schema.items ?? true, depth + 1))
}

/** A new item of a list. */
export function blank(root: Schema, schema: Schema, depth = 0): unknown {
  const s = resolve(root, schema)
  if (typeof s === 'boolean') return ''
  if (s.default !== undefined) return s.default
  if (typeOf(s) === 'object') return withDefaults(root, s, {}, depth)
  if (typeOf(s) === 'array') return []
  return typeOf(s) === 'boolean' ? false : undefined
}

/** What is wrong with a value, in words for the person who fills in the form. */
export function validate(root: Schema, schema: Schema, value: unknown, path: string[] = []): Finding[] {
  if (path.length > deepest) return []
  return active(root, schema, value).flatMap((s) => {
    if (s === true) return []
    if (s === false) return [{ path, message: 'This must not be set.' }]
    return [...ofValue(root, s, value, path), ...ofChildren(root, s, value, path)]
  })
}

function ofValue(root: Schema, s: SchemaObject, value: unknown, path: string[]): Finding[] {
  const found: Finding[] = []
  const say = (wrong: boolean, message: string) => {
    if (wrong) found.push({ path, message })
  }
  const types = Array.isArray(s.type) ? s.type : s.type ? [s.type] : []
  if (types.length > 0 && !types.some((t) => isOfType(t, value))) return [{ path, message: `Expected ${types.map(typeWord).join(' or ')}.` }]
  say(s.const !== undefined && !equal(s.const, value), `Expected ${JSON.stringify(s.const)}.`)
  say(s.enum !== undefined && !s.enum.some((e) => equal(e, value)), 'Choose one of the options.')
  if (typeof value === 'number') {
    say(s.minimum !== undefined && value < s.minimum, `At least ${s.minimum}.`)
    say(s.maximum !== undefined && value > s.maximum, `At most ${s.maximum}.`)
    say(s.exclusiveMinimum !== undefined && value <= s.exclusiveMinimum, `More than ${s.exclusiveMinimum}.`)
    say(s.exclusiveMaximum !== undefined && value >= s.exclusiveMaximum, `Less than ${s.exclusiveMaximum}.`)
  }
  if (typeof value === 'string') {
    const length = [...value].length
    say(s.minLength !== undefined && length < s.minLength, s.minLength === 1 ? 'Required.' : `At least ${s.minLength} characters.`)
    say(s.maxLength !== undefined && length > s.maxLength, `At most ${s.maxLength} characters.`)
    say(s.pattern !== undefined && !matches(s.pattern, value), 'This does not have the form that is expected here.')
  }
  say(s.gitlabUi?.widget === 'secret_reference' && value !== null && !(typeof value === 'string' && isReference(value)), 'Expected a reference, never the secret: env:NAME, file:/path, k8s:namespace/name#key or vault:mount/data/path#key.')
  if (Array.isArray(value)) {
    say(s.minItems !== undefined && value.length < s.minItems, `At least ${s.minItems}.`)
    say(s.maxItems !== undefined && value.length > s.maxItems, `At most ${s.maxItems}.`)
  }
  const holds = (other: Schema) => validate(root, other, value, path).length === 0
  say(s.not !== undefined && holds(s.not), 'This is not allowed here.')
  if (s.anyOf !== undefined && !s.anyOf.some(holds)) found.push(alternatives(path, 'At least one of these is needed', s.anyOf))
  if (s.oneOf !== undefined && s.oneOf.filter(holds).length !== 1) found.push(alternatives(path, 'Exactly one of these is needed', s.oneOf))
  return found
}

const kubernetesReference = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?#[A-Za-z0-9._-]+$/
const vaultReference = /^([A-Za-z0-9_-][A-Za-z0-9_.-]*\/)+[A-Za-z0-9_-][A-Za-z0-9_.-]*#[^#\t\n\f\r ]+$/

/** Whether a text has the form of a reference to a secret, as the server decides it (pkg/secret/reference). */
export function isReference(text: string): boolean {
  const at = text.indexOf(':')
  const rest = at < 0 ? '' : text.slice(at + 1)
  switch (at < 0 ? text : text.slice(0, at)) {
    case 'env':
      return /^[A-Za-z_][A-Za-z0-9_]*$/.test(rest)
    case 'file':
      return rest.startsWith('/')
    case 'k8s':
      return kubernetesReference.test(rest)
    case 'vault':
      return vaultReference.test(rest)
    default:
      return false
  }
}

/** What to fill in, where alternatives differ by the fields that they require. */
function alternatives(path: string[], lead: string, all: Schema[]): Finding {
  const needed = { lead, fields: all.map((one) => (typeof one === 'boolean' ? [] : (one.required ?? []))) }
  if (needed.fields.some((names) => names.length === 0)) return { path, message: 'This fits none of what is allowed here.' }
  return { path, message: neededWords(needed, humanise), needed }
}

function neededWords({ lead, fields }: Alternatives, label: (name: string) => string): string {
  return `${lead}: ${fields.map((names) => names.map(label).join(' and ')).join('; ')}.`
}

/** What a finding says where fields have labels. */
export function messageWith(finding: Finding, label: (name: string) => string): string {
  return finding.needed ? neededWords(finding.needed, label) : finding.message
}

function ofChildren(root: Schema, s: SchemaObject, value: unknown, path: string[]): Finding[] {
  if (Array.isArray(value)) return value.flatMap((v, i) => (s.items === undefined ? [] : validate(root, s.items, v, [...path, String(i)])))
  if (!isRecord(value)) return []
  const missing = (s.required ?? []).filter((name) => value[name] === undefined).map((name) => ({ path: [...path, name], message: 'Required.' }))
  const nested = Object.entries(value).flatMap(([name, v]) => {
    if (v === undefined) return []
    const property = s.properties?.[name]
    if (property !== undefined) return validate(root, property, v, [...path, name])
    if (s.additionalProperties === undefined) return []
    return validate(root, s.additionalProperties, v, [...path, name])
  })
  return [...missing, ...nested]
}

function typeWord(type: string): string {
  switch (type) {
    case 'integer':
      return 'a whole number'
    case 'number':
      return 'a number'
    case 'string':
      return 'text'
    case 'boolean':
      return 'yes or no'
    case 'array':
      return 'a list'
    default:
      return type
  }
}
