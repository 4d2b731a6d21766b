// The form of a driver's schema, by reflection: it knows the widgets of gitlabUi and the types of JSON Schema, and no driver.
// A widget that it does not know gives the default control of the type (R24). Schema descriptions are never shown (R25).
import { useEffect, useId, useRef, useState } from 'react'
import { announce } from '../parts/announce'
import { Field, Problem } from '../parts/form'
import { optionWords, wordsFor } from './copy'
import { agentName, agentNumber, agentValue, ofKinds, type Agent, type Credential } from './offers'
import { blank, choices, fields, given, isRecord, messageWith, type Field as SchemaField, resolve, typeOf, withField, type Finding, type Json, type Schema, type SchemaObject } from './schema'

export interface FormContext {
  root: Schema
  driver: string
  findings: Finding[]
  /** The agents there are, offered by agent_picker, and the credentials that the viewer may see, offered by credential_picker. */
  agents: Agent[]
  credentials?: Credential[]
}

interface NodeProps {
  context: FormContext
  schema: SchemaObject
  path: string[]
  value: unknown
  required: boolean
  /** In place of the words for the path: those of a map's members have names that people chose. */
  label?: string
  onChange: (value: unknown) => void
}

export function SchemaForm(props: { context: FormContext; value: unknown; onChange: (value: Json) => void }) {
  const { context, value, onChange } = props
  return (
    <>
      {messagesAt(context, []).map((message) => (
        <Problem key={message} message={message} />
      ))}
      <Properties context={context} schema={context.root} path={[]} value={isRecord(value) ? value : {}} onChange={onChange} />
    </>
  )
}

function Properties(props: { context: FormContext; schema: Schema; path: string[]; value: Json; onChange: (value: Json) => void }) {
  const { context, schema, path, value, onChange } = props
  const all = offered(context.root, schema, value)
  const needed = choices(context.root, schema, value)
  const optional = all.filter((f) => !f.required && !needed.has(f.name))
  const node = (f: SchemaField) => (
    <Node
      key={f.name}
      context={context}
      schema={f.schema}
      path={[...path, f.name]}
      value={value[f.name]}
      required={f.required}
      onChange={(next) => onChange(withField(context.root, schema, value, f, next))}
    />
  )
  if (optional.length < manyOptional || optional.length === all.length) return <>{all.map(node)}</>
  const wrong = optional.some((f) => context.findings.some((x) => [...path, f.name].every((p, i) => x.path[i] === p)))
  return (
    <>
      {all.filter((f) => !optional.includes(f)).map(node)}
      <details className="optional" open={wrong || undefined}>
        <summary>{optional.length} optional settings</summary>
        {optional.map(node)}
      </details>
    </>
  )
}

/** The fields that leave something to decide: one with a single value that nobody needs is none. */
function offered(root: Schema, schema: Schema, value: unknown): SchemaField[] {
  return fields(root, schema, value).filter((f) => f.required || f.schema.const === undefined)
}

/** Whether the form shows a finding about a place: at its control, its group, or the control that has it as JSON. */
export function showsAt(root: Schema, schema: Schema, value: unknown, [name, ...rest]: string[]): boolean {
  if (name === undefined) return true
  const s = resolve(root, schema)
  if (typeof s === 'boolean') return false
  const control = controlOf(s)
  if (control === 'json') return true
  if (control === 'array') return Array.isArray(value) && Number(name) < value.length && showsAt(root, s.items ?? true, value[Number(name)], rest)
  if (control === 'map') return isRecord(value) && name in value && showsAt(root, s.additionalProperties ?? true, value[name], rest)
  const inner = isRecord(value) ? value : {}
  const field = control === 'object' ? offered(root, s, inner).find((f) => f.name === name) : undefined
  return field !== undefined && showsAt(root, field.schema, inner[name], rest)
}

/** From so many on, what need not be set is folded away, below what has to be. */
const manyOptional = 3

export type Control = 'agent' | 'credential' | 'secret' | 'text' | 'code' | 'number' | 'checkbox' | 'select' | 'object' | 'array' | 'map' | 'json'

/** The control of a node: what its widget asks for if its type can be collected that way, otherwise the type's own. */
export function controlOf(schema: SchemaObject): Control {
  const type = typeOf(schema)
  const byType: Control =
    schema.enum && type !== 'object' && type !== 'array' ? 'select'
    : type === 'string' ? 'text'
    : type === 'integer' || type === 'number' ? 'number'
    : type === 'boolean' ? 'checkbox'
    : type === 'object' && schema.properties ? 'object'
    : type === 'array' && schema.items !== undefined ? 'array'
    : type === 'object' && hasControl(schema.additionalProperties) ? 'map'
    : 'json'
  switch (schema.gitlabUi?.widget) {
    case 'agent_picker':
      return type === 'integer' && byType === 'number' ? 'agent' : byType
    case 'credential_picker':
      return byType === 'text' ? 'credential' : byType
    case 'secret_reference':
      return byType === 'text' ? 'secret' : byType
    case 'select':
      return schema.enum ? 'select' : byType
    case 'code':
      return byType === 'text' ? 'code' : byType
    default:
      return byType
  }
}

/** Whether the members of a map are of a kind that a form is made for. */
const hasControl = (member: Schema | undefined): boolean => isRecord(member) && (member.$ref !== undefined || typeOf(member) !== '')

function Node(props: NodeProps) {
  const control = controlOf(props.schema)
  if (control === 'map') return <MapNode {...props} />
  if (control === 'object') return <ObjectNode {...props} />
  if (control === 'array') return <ArrayNode {...props} />
  return <Leaf {...props} control={control} />
}

/** What is wrong at a place, with the labels that its fields have here. */
function messagesAt(context: FormContext, path: string[]): string[] {
  const at = path.join('/')
  const label = (name: string) => wordsFor(context.driver, [...path, name]).label
  return [...new Set(context.findings.filter((f) => f.path.join('/') === at).map((f) => messageWith(f, label)))]
}

const messageAt = (context: FormContext, path: string[]): string | undefined => messagesAt(context, path)[0]

/** What is wrong at a place or somewhere in it, for a control that has all of it as JSON. */
function messageWithin(context: FormContext, path: string[]): string | undefined {
  const inside = context.findings.find((f) => f.path.length > path.length && path.every((p, i) => f.path[i] === p))
  return messageAt(context, path) ?? (inside && `${inside.path.slice(path.length).join(' › ')}: ${inside.message}`)
}

function ObjectNode({ context, schema, path, value, required, onChange }: NodeProps) {
  const words = wordsFor(context.driver, path)
  // Its controls are made anew when it is removed: some keep a text of their own.
  const [removed, setRemoved] = useState(0)
  const remove = () => {
    setRemoved(removed + 1)
    onChange(undefined)
  }
  return (
    <fieldset className="group">
      <legend>{words.label}</legend>
      {words.help && <p className="help">{words.help}</p>}
      <Problem message={messageAt(context, path)} />
      <Properties key={removed} context={context} schema={schema} path={path} value={isRecord(value) ? value : {}} onChange={onChange} />
      {!required && value !== undefined && given(schema) === undefined && (
        <button type="button" className="quiet" onClick={remove}>
          Remove {words.label}
        </button>
      )}
    </fieldset>
  )
}

function ArrayNode({ context, schema, path, value, onChange }: NodeProps) {
  const words = wordsFor(context.driver, path)
  const items = Array.isArray(value) ? (value as unknown[]) : []
  // The controls of those behind it are made anew when one is removed or moved: some keep a text of their own.
  const [changes, setChanges] = useState(0)
  const group = useRef<HTMLFieldSetElement>(null)
  const came = useRef<number>(null)
  useEffect(() => {
    if (came.current === null) return
    group.current?.querySelectorAll(':scope > .item')[came.current]?.querySelector<HTMLElement>(':scope > .buttons > button:enabled')?.focus()
    came.current = null
  }, [changes])
  const set = (index: number, next: unknown) => onChange(items.map((v, i) => (i === index ? next : v)))
  const remove = (index: number) => {
    setChanges(changes + 1)
    onChange(items.filter((_, i) => i !== index))
  }
  const move = (from: number, to: number) => {
    setChanges(changes + 1)
    came.current = to
    onChange(items.map((v, i) => (i === from ? items[to] : i === to ? items[from] : v)))
    announce(`${words.label} ${from + 1} is number ${to + 1} now`)
  }
  // Of plain values, such as patterns, the order has no meaning.
  const ordered = items.length > 1 && items.every(isRecord)
  return (
    <fieldset className="group" ref={group}>
      <legend>{words.label}</legend>
      {words.help && <p className="help">{words.help}</p>}
      <Problem message={messageAt(context, path)} />
      {items.map((item, index) => (
        <div className="item" key={`${changes}/${index}`} role="group" aria-label={`${words.label} ${index + 1}`}>
          <Member context={context} schema={schema.items ?? true} path={[...path, String(index)]} value={item} onChange={(v) => set(index, v)} />
          <span className="buttons">
            {ordered && (
              <>
                <button type="button" className="quiet" disabled={index === 0} onClick={() => move(index, index - 1)}>
                  Move {index + 1} up
                </button>
                <button type="button" className="quiet" disabled={index === items.length - 1} onClick={() => move(index, index + 1)}>
                  Move {index + 1} down
                </button>
              </>
            )}
            <button type="button" className="quiet" onClick={() => remove(index)}>
              Remove {index + 1}
            </button>
          </span>
        </div>
      ))}
      <button type="button" aria-label={`Add to ${words.label}`} onClick={() => onChange([...items, blank(context.root, schema.items ?? true)])}>
        Add
      </button>
    </fieldset>
  )
}

/** One of a list or of a map; its group has the label. */
function Member({ context, schema, path, value, label, onChange }: Omit<NodeProps, 'schema' | 'required'> & { schema: Schema }) {
  const s = resolve(context.root, schema)
  if (typeof s === 'boolean' || controlOf(s) !== 'object') return <Node context={context} schema={typeof s === 'boolean' ? {} : s} path={path} value={value} required {...(label === undefined ? {} : { label })} onChange={onChange} />
  return (
    <>
      <Problem message={messageAt(context, path)} />
      <Properties context={context} schema={s} path={path} value={isRecord(value) ? value : {}} onChange={onChange} />
    </>
  )
}

/** Values by names that people choose. */
function MapNode({ context, schema, path, value, required, onChange }: NodeProps) {
  const words = wordsFor(context.driver, path)
  const entries = Object.entries(isRecord(value) ? value : {})
  const names = entries.map(([name]) => name)
  const send = (next: Array<[string, unknown]>) => onChange(next.length === 0 && !required ? undefined : Object.fromEntries(next))
  return (
    <fieldset className="group">
      <legend>{words.label}</legend>
      {words.help && <p className="help">{words.help}</p>}
      <Problem message={messageAt(context, path)} />
      {entries.map(([name, one], index) => (
        <div className="item" key={name} role="group" aria-label={`${words.label} ${index + 1}`}>
          <NameInput name={name} others={names.filter((n) => n !== name)} onChange={(next) => send(entries.map((e, i) => (i === index ? [next, one] : e)))} />
          <Member context={context} schema={schema.additionalProperties ?? true} path={[...path, name]} value={one} label="Value" onChange={(v) => send(entries.map((e, i) => (i === index ? [name, v ?? ''] : e)))} />
          <button type="button" className="quiet" onClick={() => send(entries.filter((_, i) => i !== index))}>
            Remove {name}
          </button>
        </div>
      ))}
      <button type="button" aria-label={`Add to ${words.label}`} onClick={() => send([...entries, [unusedName(names), blank(context.root, schema.additionalProperties ?? true) ?? '']])}>
        Add
      </button>
    </fieldset>
  )
}

function unusedName(names: string[]): string {
  for (let n = 1; ; n++) if (!names.includes(`name_${n}`)) return `name_${n}`
}

/** The name of a member, which takes effect once the control is left: on the way to it, it may be that of another. */
function NameInput({ name, others, onChange }: { name: string; others: string[]; onChange: (name: string) => void }) {
  const id = useId()
  const [typed, setTyped] = useState(name)
  const problem = typed === '' ? 'Required.' : others.includes(typed) ? `Found ${typed}, which another has; expected a name of its own.` : undefined
  return (
    <Field id={id} label="Name" problem={problem}>
      <input
        id={id}
        aria-describedby={`${id}-notes`}
        aria-invalid={problem ? true : undefined}
        type="text"
        spellCheck={false}
        autoComplete="off"
        value={typed}
        onChange={(e) => setTyped(e.target.value)}
        onBlur={() => problem === undefined && typed !== name && onChange(typed)}
        onKeyDown={(e) => {
          if (e.key !== 'Enter' || problem !== undefined || typed === name) return
          e.preventDefault()
          onChange(typed)
        }}
      />
    </Field>
  )
}

function Leaf({ context, schema, path, value, required, label, onChange, control }: NodeProps & { control: Control }) {
  const words = label === undefined ? wordsFor(context.driver, path) : { label }
  const id = useId()
  const message = control === 'json' ? messageWithin(context, path) : messageAt(context, path)
  const common = { id, 'aria-invalid': message ? true : undefined, 'aria-describedby': `${id}-notes`, 'data-field': path.join('/') }
  if (control === 'checkbox') {
    return (
      <Field id={id} label={words.label} help={words.help} problem={message} inline>
        <input {...common} type="checkbox" checked={value === true} onChange={(e) => onChange(e.target.checked)} />
      </Field>
    )
  }
  return (
    <Field id={id} label={words.label} help={words.help ?? (control === 'secret' ? secretHelp : undefined)} problem={message} optional={!required}>
      {control === 'select' ? (
        <select {...common} value={(schema.enum ?? []).findIndex((o) => o === value)} onChange={(e) => onChange(schema.enum?.[Number(e.target.value)])}>
          {!((schema.enum ?? []).includes(value) && required) && <option value={-1}>{required ? 'Choose…' : unset(words, schema)}</option>}
          {(schema.enum ?? []).map((option, i) => (
            <option key={i} value={i}>
              {optionWords(words, option)}
            </option>
          ))}
        </select>
      ) : control === 'number' ? (
        <NumberInput common={common} schema={schema} value={value} onChange={onChange} />
      ) : control === 'agent' ? (
        <AgentInput common={common} value={value} onChange={onChange} agents={context.agents} />
      ) : control === 'credential' ? (
        <CredentialInput common={common} value={value} required={required} onChange={onChange} credentials={ofKinds(context.credentials ?? [], schema.credentialKind)} />
      ) : control === 'code' ? (
        <CodeInput common={common} schema={schema} value={value} required={required} onChange={onChange} />
      ) : control === 'json' ? (
        <JsonInput common={common} value={value} onChange={onChange} />
      ) : (
        <input {...common} type="text" spellCheck={false} autoComplete="off" value={typeof value === 'string' ? value : ''} onChange={(e) => onChange(textOr(e.target.value, required))} />
      )}
    </Field>
  )
}

/** What an option that is not chosen means. */
const unset = (words: ReturnType<typeof wordsFor>, schema: SchemaObject): string => (schema.default === undefined ? (words.unset ?? 'None') : `Default: ${optionWords(words, schema.default)}`)

type Common = { id: string; 'aria-describedby': string; 'data-field': string }

const secretHelp = 'A reference to a secret, never the secret: vault:mount/data/path#key, k8s:namespace/name#key, file:/path or env:NAME.'

function NumberInput(props: { common: Common; schema: SchemaObject; value: unknown; onChange: (v: unknown) => void }) {
  const { common, schema, value, onChange } = props
  return (
    <input
      {...common}
      type="number"
      min={schema.minimum}
      max={schema.maximum}
      step={typeOf(schema) === 'integer' ? 1 : 'any'}
      value={typeof value === 'number' ? value : ''}
      onChange={(e) => onChange(Number.isNaN(e.target.valueAsNumber) ? undefined : e.target.valueAsNumber)}
    />
  )
}

/** An agent by its name: the value is its number. One whose name is not known here may be entered by its number. */
function AgentInput({ common, value, onChange, agents }: { common: Common; value: unknown; onChange: (v: unknown) => void; agents: Agent[] }) {
  const [typed, setTyped] = useState<string | null>(null)
  const text = typed ?? agentName(agents, value)
  const list = agents.length > 0 ? `${common.id}-offers` : undefined
  const unknown = text.trim() !== '' && agentNumber(agents, text) === undefined
  return (
    <>
      <input
        {...common}
        type="text"
        spellCheck={false}
        autoComplete="off"
        list={list}
        value={text}
        onChange={(e) => {
          setTyped(e.target.value)
          onChange(agentValue(agents, e.target.value))
        }}
        onBlur={() => !unknown && setTyped(null)}
      />
      {list && (
        <datalist id={list}>
          {agents.map((a) => (
            <option key={a.number} value={a.name} />
          ))}
        </datalist>
      )}
      {unknown && <Problem message={`There is no agent called ${text.trim()}.`} />}
    </>
  )
}

interface TextInputProps {
  common: Common
  value: unknown
  required: boolean
  onChange: (v: unknown) => void
}

/** The text of a control; an empty one that is not required is none. */
const textOr = (text: string, required: boolean) => (text === '' && !required ? undefined : text)

/** A credential by its name. Those of the operator are not listed, so that other names may be entered. */
function CredentialInput({ common, value, required, onChange, credentials }: TextInputProps & { credentials: Credential[] }) {
  const list = credentials.length > 0 ? `${common.id}-offers` : undefined
  return (
    <>
      <input {...common} type="text" spellCheck={false} autoComplete="off" list={list} value={typeof value === 'string' ? value : ''} onChange={(e) => onChange(textOr(e.target.value, required))} />
      {list && (
        <datalist id={list}>
          {credentials.map((c) => (
            <option key={c.name} value={c.name} label={c.kind} />
          ))}
        </datalist>
      )}
    </>
  )
}

const languages: Record<string, string> = { 'application/yaml': 'YAML', 'application/json': 'JSON', 'text/x-starlark': 'Starlark', 'text/x-cel': 'CEL', 'application/toml': 'TOML', 'text/plain': 'Text' }

/** A text of many lines, in the language that the driver's schema gives it. */
function CodeInput({ common, schema, value, required, onChange }: TextInputProps & { schema: SchemaObject }) {
  const media = schema.contentMediaType
  const text = typeof value === 'string' ? value : ''
  return (
    <>
      <textarea {...common} className="code" rows={16} wrap="off" spellCheck={false} autoComplete="off" data-language={media} value={text} onChange={(e) => onChange(textOr(e.target.value, required))} />
      {media && <span className="faint">{languages[media] ?? media}</span>}
      {media === 'application/json' && text.trim() !== '' && !isJSON(text) && <Problem message="This is not JSON yet." />}
    </>
  )
}

function isJSON(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** For what has no control of its own: the value as JSON. It is passed on as soon as it can be read. */
function JsonInput(props: { common: Common; value: unknown; onChange: (v: unknown) => void }) {
  const [text, setText] = useState(() => (props.value === undefined ? '' : JSON.stringify(props.value, null, 2)))
  const [wrong, setWrong] = useState(false)
  return (
    <>
      <textarea
        {...props.common}
        rows={4}
        spellCheck={false}
        value={text}
        onChange={(e) => {
          setText(e.target.value)
          try {
            props.onChange(e.target.value.trim() === '' ? undefined : JSON.parse(e.target.value))
            setWrong(false)
          } catch {
            setWrong(true)
          }
        }}
      />
      {wrong && <Problem message="This is not JSON yet." />}
    </>
  )
}
