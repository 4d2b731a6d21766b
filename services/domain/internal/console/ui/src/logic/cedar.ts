// What can be written at a place of a Cedar policy, read from the schema that the server validates by.

/** An attribute of a record, and the attributes of its own type if that is a record. */
export interface Attribute {
  name: string
  type: string
  optional: boolean
  doc: string
  attributes: Attribute[]
}

export interface Vocabulary {
  actions: string[]
  /** Types of entities with their attributes. */
  entities: Map<string, Attribute[]>
  /** What is behind `context.`, of all actions together. */
  context: Attribute[]
  annotations: string[]
  /** The names of what the organization has, by the type of entity; those of services, which are texts in policies, under Service. */
  names: Map<string, string[]>
}

export interface Choice {
  label: string
  detail: string
  info: string
  kind: 'keyword' | 'property' | 'type' | 'constant'
}

const lexicon = /\/\/[^\n]*|"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|[{}<>:;,=?[\]]/g

class Reader {
  private readonly tokens: string[]
  private at = 0
  private doc: string[] = []
  constructor(text: string) {
    this.tokens = text.match(lexicon) ?? []
  }

  /** The next token that is no comment; comments before it are its documentation. */
  peek(): string | undefined {
    while (this.tokens[this.at]?.startsWith('//')) this.doc.push(this.tokens[this.at++]!.slice(2).trim())
    return this.tokens[this.at]
  }

  take(): string | undefined {
    const token = this.peek()
    this.at++
    return token
  }

  documentation(): string {
    this.peek()
    const doc = this.doc.join(' ')
    this.doc = []
    return doc
  }

  /** { name?: Type, … } from its brace on. */
  record(): Attribute[] {
    const all: Attribute[] = []
    this.take()
    while (this.peek() !== undefined && this.peek() !== '}') {
      const doc = this.documentation()
      const name = (this.take() ?? '').replaceAll('"', '')
      const optional = this.peek() === '?'
      if (optional) this.take()
      this.take() // the colon
      const { type, attributes } = this.type()
      all.push({ name, type, optional, doc, attributes })
      if (this.peek() === ',') this.take()
    }
    this.take()
    return all
  }

  private type(): { type: string; attributes: Attribute[] } {
    if (this.peek() === '{') return { type: 'record', attributes: this.record() }
    const name = this.take() ?? ''
    if (this.peek() !== '<') return { type: name, attributes: [] }
    this.take()
    const { type } = this.type()
    this.take()
    return { type: `${name}<${type}>`, attributes: [] }
  }
}

/** Reads schemas. Of an attribute that several actions have, the first one counts. */
export function vocabulary(schemas: string[], annotations: string[], names: Map<string, string[]> = new Map()): Vocabulary {
  const found: Vocabulary = { actions: [], entities: new Map(), context: [], annotations, names }
  const types = new Map<string, Attribute[]>()
  for (const schema of schemas) {
    const r = new Reader(schema)
    for (let word = r.take(); word !== undefined; word = r.take()) {
      r.documentation()
      if (word === 'type') {
        const name = r.take() ?? ''
        r.take() // the sign
        types.set(name, r.record())
      } else if (word === 'entity') {
        const name = r.take() ?? ''
        while (r.peek() !== undefined && r.peek() !== '{' && r.peek() !== ';') r.take()
        const attributes = r.peek() === '{' ? r.record() : []
        if (!found.entities.has(name)) found.entities.set(name, attributes)
      } else if (word === 'action') {
        while (r.peek() !== undefined && r.peek() !== 'appliesTo') {
          const name = r.take() ?? ''
          if (name.startsWith('"')) found.actions.push(name.slice(1, -1))
        }
      } else if (word === 'context') {
        r.take() // the colon
        for (const a of r.record()) if (!found.context.some((b) => b.name === a.name)) found.context.push(a)
      }
    }
  }
  const resolve = (all: Attribute[]): Attribute[] => all.map((a) => ({ ...a, attributes: resolve(a.attributes.length > 0 ? a.attributes : (types.get(a.type) ?? [])) }))
  found.context = resolve(found.context)
  return found
}

const keywords: [string, string][] = [
  ['permit', 'allows what matches, unless a forbid matches as well'],
  ['forbid', 'denies what matches'],
  ['principal', 'who requested it'],
  ['action', 'what is to be done'],
  ['resource', 'the environment, application or Function that it is done to'],
  ['context', 'everything else that is known'],
  ['when', 'a condition that has to hold'],
  ['unless', 'a condition that must not hold'],
  ['has', 'whether an attribute is present'],
  ['like', 'whether a text matches a pattern with *'],
  ['in', 'whether it is a member'],
  ['is', 'whether it is of a type'],
  ['contains', 'whether a set has a value'],
  ['containsAll', 'whether a set has all values of another one'],
  ['containsAny', 'whether a set has a value of another one'],
]

const asChoice = (a: Attribute): Choice => ({ label: a.name, detail: a.optional ? `${a.type}, may be absent` : a.type, info: a.doc, kind: 'property' })

/** The text that services are searched for, behind those that stand before it in a list. */
const sought = /\bcontext\.(?:versionSet|change)\.(services)\.contains(?:\(|(?:All|Any)\(\s*\[(?:\s*"(?:[^"\\]|\\.)*"\s*,)*)\s*"([^"\\]*)$/

/** What can continue a text: the choices, and how many characters at its end they would replace. */
export function complete(v: Vocabulary, before: string): { choices: Choice[]; replaces: number } {
  const line = before.slice(before.lastIndexOf('\n') + 1)
  if (/^\s*\/\//.test(line)) return { choices: [], replaces: 0 }
  const action = /\bAction::"([\w.]*)$/.exec(line)
  if (action) return { choices: v.actions.map((label) => ({ label, detail: 'action', info: '', kind: 'constant' })), replaces: action[1]!.length }
  const named = /\b(\w+)::"([^"\\]*)$/.exec(line) ?? /@(group)\("([^"\\]*)$/.exec(line) ?? sought.exec(line)
  if (named) {
    const type = { group: 'Group', services: 'Service' }[named[1]!] ?? named[1]!
    const begun = named[2]!
    // Quotes and backslashes are written differently in Cedar, so a name with one is left to its author.
    const all = (v.names.get(type) ?? []).filter((name) => !/["\\]/.test(name) && name.toLowerCase().startsWith(begun.toLowerCase()))
    return { choices: all.map((label) => ({ label, detail: type.toLowerCase(), info: '', kind: 'constant' })), replaces: begun.length }
  }
  if ((line.match(/"/g)?.length ?? 0) % 2 === 1) return { choices: [], replaces: 0 } // within a text
  const annotation = /@(\w*)$/.exec(line)
  if (annotation) return { choices: v.annotations.map((label) => ({ label, detail: 'annotation', info: '', kind: 'keyword' })), replaces: annotation[1]!.length }
  const path = /\b(context|principal|resource)((?:\.\w+)*)(?:\.|\s+has\s+)(\w*)$/.exec(line)
  if (path) {
    const [, root, inner, word] = path
    let attributes = root === 'context' ? v.context : [...new Map([...v.entities.values()].flat().map((a) => [a.name, a])).values()]
    for (const name of inner!.split('.').filter(Boolean)) {
      const next = attributes.find((a) => a.name === name)
      attributes = next ? (next.attributes.length > 0 ? next.attributes : (v.entities.get(next.type) ?? [])) : []
    }
    return { choices: attributes.map(asChoice), replaces: word!.length }
  }
  const word = /[A-Za-z]\w*$/.exec(line)?.[0] ?? ''
  if (word === '' || /\.\w*$/.test(line)) return { choices: [], replaces: 0 }
  const types = ['Action', ...v.entities.keys()].map((name): Choice => ({ label: name, detail: 'type', info: '', kind: 'type' }))
  return { choices: [...keywords.map(([label, info]): Choice => ({ label, detail: '', info, kind: 'keyword' })), ...types], replaces: word.length }
}
