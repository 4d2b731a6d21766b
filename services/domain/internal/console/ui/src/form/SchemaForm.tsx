// The form of a driver's schema, by reflection: it knows the widgets of gitlabUi and the types of JSON Schema, and no driver.
// A widget that it does not know gives the default control of the type (R24). Schema descriptions are never shown (R25).
import { useId, useState } from 'react'
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
  const all = fields(context.root, schema, value)
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

/** From so many on, what need not be set is folded away, below what has to be. */
const manyOptional = 3

export type Control = 'agent' | 'credential' | 'secret' | 'text' | 'code' | 'number' | 'checkbox' | 'select' | 'object' | 'array' | 'json'

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

function Node(props: NodeProps) {
  const control = controlOf(props.schema)
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
  const itemSchema = resolve(context.root, schema.items ?? true)
  const set = (index: number, next: unknown) => onChange(items.map((v, i) => (i === index ? next : v)))
  return (
    <fieldset className="group">
      <legend>{words.label}</legend>
      {words.help && <p className="help">{words.help}</p>}
      <Problem message={messageAt(context, path)} />
      {items.map((item, index) => {
        const at = [...path, String(index)]
        return (
          <div className="item" key={index} role="group" aria-label={`${words.label} ${index + 1}`}>
            {typeof itemSchema !== 'boolean' && controlOf(itemSchema) === 'object' ? (
              <>
                <Problem message={messageAt(context, at)} />
                <Properties context={context} schema={itemSchema} path={at} value={isRecord(item) ? item : {}} onChange={(v) => set(index, v)} />
              </>
            ) : (
              <Node context={context} schema={itemSchema === true || itemSchema === false ? {} : itemSchema} path={at} value={item} required onChange={(v) => set(index, v)} />
            )}
            <button type="button" className="quiet" onClick={() => onChange(items.filter((_, i) => i !== index))}>
              Remove {index + 1}
            </button>
          </div>
        )
      })}
      <button type="button" onClick={() => onChange([...items, blank(context.root, schema.items ?? true)])}>
        Add
      </button>
    </fieldset>
  )
}

function Leaf({ context, schema, path, value, required, onChange, control }: NodeProps & { control: Control }) {
  const words = wordsFor(context.driver, path)
  const id = useId()
  const message = messageAt(context, path)
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
          {!((schema.enum ?? []).includes(value) && required) && <option value={-1}>{required ? 'Choose…' : 'None'}</option>}
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
