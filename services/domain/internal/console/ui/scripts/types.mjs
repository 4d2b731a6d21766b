// Writes src/api/generated.ts: the operations of src/api/*.graphql, checked against the schema of the API, each with
// the types of what it takes and answers. `node scripts/types.mjs --check` only reports whether the file is up to date.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import {
  buildSchema, concatAST, isEnumType, isInputObjectType, isListType, isNonNullType, isObjectType, isScalarType, parse, print, Source, typeFromAST, validate,
} from 'graphql'

const target = 'src/api/generated.ts'
const contract = '../../api/graph/schema'
const schema = buildSchema(readdirSync(contract).filter((name) => name.endsWith('.graphqls')).sort().map((name) => readFileSync(`${contract}/${name}`, 'utf8')).join('\n'))
const asked = readdirSync('src/api').filter((name) => name.endsWith('.graphql')).sort().map((name) => parse(new Source(readFileSync(`src/api/${name}`, 'utf8'), `src/api/${name}`)))
const document = concatAST(asked)
const problems = validate(schema, document)
if (problems.length > 0) {
  for (const p of problems) console.error(`${p.source?.name}:${p.locations?.[0]?.line}: ${p.message}`)
  process.exit(1)
}

const scalars = { ID: 'string', String: 'string', Int: 'number', Float: 'number', Boolean: 'boolean', Time: 'string', JSON: 'unknown' }
const named = new Map() // enums and inputs that are used
const fragments = new Map(document.definitions.filter((d) => d.kind === 'FragmentDefinition').map((d) => [d.name.value, d]))

function nullable(type, inner) {
  return isNonNullType(type) ? inner(type.ofType) : `${inner(type)} | null`
}

function reference(type) {
  return nullable(type, (t) => {
    if (isListType(t)) return `Array<${reference(t.ofType)}>`
    if (isScalarType(t)) return scalars[t.name]
    use(t)
    return t.name
  })
}

function use(type) {
  if (named.has(type.name)) return
  named.set(type.name, '')
  if (isEnumType(type)) {
    named.set(type.name, `export type ${type.name} = ${type.getValues().map((v) => `'${v.name}'`).join(' | ')}\n`)
  } else if (isInputObjectType(type)) {
    const fields = Object.values(type.getFields()).map((f) => {
      const optional = !isNonNullType(f.type) || f.defaultValue !== undefined
      return `  ${f.name}${optional ? '?' : ''}: ${reference(f.type)}\n`
    })
    named.set(type.name, `export interface ${type.name} {\n${fields.join('')}}\n`)
  }
}

// fieldsOf puts fragments in, and narrows an inline fragment to the one type it is about.
function fieldsOf(set, type, out = new Map()) {
  for (const s of set.selections) {
    if (s.kind === 'Field') {
      const name = (s.alias ?? s.name).value
      const field = s.name.value === '__typename' ? { type: null } : type.getFields()[s.name.value]
      const before = out.get(name)
      out.set(name, { field, selections: [...(before?.selections ?? []), ...(s.selectionSet?.selections ?? [])] })
    } else {
      const f = s.kind === 'FragmentSpread' ? fragments.get(s.name.value) : s
      fieldsOf(f.selectionSet, f.typeCondition ? schema.getType(f.typeCondition.name.value) : type, out)
    }
  }
  return out
}

function shape(set, type, indent) {
  const pad = ' '.repeat(indent)
  const lines = [...fieldsOf(set, type)].map(([name, { field, selections }]) => {
    if (field.type === null) return `${pad}  ${name}: string\n`
    return `${pad}  ${name}: ${result(field.type, selections, indent + 2)}\n`
  })
  return `{\n${lines.join('')}${pad}}`
}

function result(type, selections, indent) {
  return nullable(type, (t) => {
    if (isListType(t)) return `Array<${result(t.ofType, selections, indent)}>`
    if (selections.length === 0) return reference(type).replace(/ \| null$/, '')
    return shape({ selections }, t, indent)
  })
}

function spreads(node, found = new Set()) {
  JSON.stringify(node, (key, value) => {
    if (value?.kind === 'FragmentSpread' && !found.has(value.name.value)) {
      found.add(value.name.value)
      spreads(fragments.get(value.name.value), found)
    }
    return key === 'loc' ? undefined : value
  })
  return found
}

const operations = document.definitions.filter((d) => d.kind === 'OperationDefinition').map((o) => {
  const name = o.name.value
  const root = schema.getRootType(o.operation)
  const variables = o.variableDefinitions.map((v) => {
    const type = typeFromAST(schema, v.type)
    return `  ${v.variable.name.value}${isNonNullType(type) && !v.defaultValue ? '' : '?'}: ${reference(type)}\n`
  })
  const text = [print(o), ...[...spreads(o)].map((f) => print(fragments.get(f)))].join('\n').replace(/\s+/g, ' ')
  return (
    `export interface ${name}Data ${shape(o.selectionSet, root, 0)}\n` +
    (variables.length > 0 ? `export interface ${name}Variables {\n${variables.join('')}}\n` : `export type ${name}Variables = Record<string, never>\n`) +
    `export const ${name}: Operation<${name}Data, ${name}Variables> = { name: '${name}', text: '${text}' }\n`
  )
})
const fragmentTypes = [...fragments.values()].map((f) => {
  const type = schema.getType(f.typeCondition.name.value)
  return isObjectType(type) ? `export interface ${f.name.value} ${shape(f.selectionSet, type, 0)}\n` : ''
})

const head = `// Code generated by scripts/types.mjs from the operations beside it and the schema of the API. DO NOT EDIT.
export interface Operation<Data, Variables> {
  name: string
  text: string
  /** Only for the types; never there. */
  phantom?: (v: Variables) => Data
}
`
const text = [head, ...[...named.keys()].sort().map((n) => named.get(n)), ...fragmentTypes, ...operations].join('\n')
if (process.argv.includes('--check')) {
  if (readFileSync(target, 'utf8') !== text) {
    console.error(`${target} is not what scripts/types.mjs makes of the schema: run \`make console\``)
    process.exit(1)
  }
} else {
  writeFileSync(target, text)
}
