// Where notifications are sent to, what is sent there, and what became of each message: dead letters can be sent again.
import { useId, useState } from 'react'
import { Link } from 'react-router'
import { accepted, ask } from '../api/client'
import {
  NotificationKinds, Notifications as Operation, PutNotificationChannel, PutNotificationRoute, RemoveNotificationChannel, RemoveNotificationRoute, RetryNotification,
  TestNotificationRoute, UnlinkChatAccount, type NotificationKind, type NotificationKindsData, type NotificationsData, type NotificationState,
} from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { SchemaForm } from '../form/SchemaForm'
import { prune, validate, withDefaults, type Json, type Schema } from '../form/schema'
import { announce } from '../parts/announce'
import { Confirm } from '../parts/confirm'
import { Dialog } from '../parts/dialog'
import { Feeds } from '../parts/feeds'
import { Field, findingsUnder, FormError } from '../parts/form'
import { choice, forTools, moments, quiet, states, steps, texts } from '../parts/notified'
import { Empty, Page, Waiting } from '../parts/page'
import { Chip } from '../parts/state'
import { TemplatesForm } from '../parts/templates'
import { Ago } from '../parts/time'

type Channel = NotificationsData['notificationChannels'][number]
type Route = NotificationsData['notificationRoutes'][number]
type Message = NotificationsData['notificationMessages'][number]
type Account = NotificationsData['chatAccounts'][number]

export default function Notifications() {
  const [state, setState] = useState<NotificationState | ''>('')
  const query = useAsk(Operation, { state: state || null }, { live: (d) => d.notificationMessages.some((m) => ['PENDING', 'SENDING'].includes(m.state)) })
  const changed = () => query.refetch()
  const data = query.data
  return (
    <Page title="Notifications" lead={<p>Messages about rollouts, approvals, checks, freezes and clusters. A channel without routes is sent what matters by default.</p>}>
      {!data ? (
        <Waiting query={query} what="notifications" />
      ) : (
        <div className="stack">
          <Channels all={data.notificationChannels} changed={changed} />
          <Routes all={data.notificationRoutes} channels={data.notificationChannels} changed={changed} />
          <Accounts all={data.chatAccounts} changed={changed} />
          <Messages all={data.notificationMessages} state={state} setState={setState} changed={changed} />
          <Feeds />
        </div>
      )}
    </Page>
  )
}

function Channels({ all, changed }: { all: Channel[]; changed: () => Promise<unknown> }) {
  const [editing, setEditing] = useState<Channel | 'new' | null>(null)
  const [removing, setRemoving] = useState<Channel | null>(null)
  const [wording, setWording] = useState<Channel | null>(null)
  return (
    <section className="card" aria-labelledby="channels">
      <header className="line">
        <h2 id="channels">Channels</h2>
        <button type="button" onClick={() => setEditing('new')}>
          Add a channel
        </button>
      </header>
      {all.length === 0 ? (
        <Empty icon="inbox" title="No channels yet">
          <p>Nothing is sent before there is one.</p>
        </Empty>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-label="Channels">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Channel</th>
                <th scope="col">State</th>
                <th scope="col">Messages a minute</th>
                <th scope="col">Saved</th>
                <th scope="col">Actions</th>
              </tr>
            </thead>
            <tbody>
              {all.map((c) => (
                <tr key={c.name}>
                  <th scope="row">
                    {c.name} <span className="faint">{c.kind.toLowerCase()}</span>
                  </th>
                  <td>{c.enabled ? 'on' : 'off'}</td>
                  <td>{c.rate}</td>
                  <td>
                    <Ago at={c.changedAt} /> by <bdi>{c.author}</bdi>
                  </td>
                  <td className="buttons">
                    <button type="button" aria-label={`Change ${c.name}`} onClick={() => setEditing(c)}>
                      Change
                    </button>
                    <button type="button" aria-label={`Texts of ${c.name}`} onClick={() => setWording(c)}>
                      Texts
                    </button>
                    <button type="button" aria-label={`Remove ${c.name}`} onClick={() => setRemoving(c)}>
                      Remove
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {editing && <EditChannel channel={editing === 'new' ? null : editing} changed={changed} onClose={() => setEditing(null)} />}
      {wording && <TemplatesForm channel={wording} changed={changed} onClose={() => setWording(null)} />}
      {removing && (
        <Confirm
          title={`Remove ${removing.name}`}
          submit="Remove"
          reasoned
          done={`${removing.name} was removed.`}
          onClose={() => setRemoving(null)}
          send={async (reason) => {
            accepted((await ask(RemoveNotificationChannel, { input: { name: removing.name, reason } })).removeNotificationChannel)
            await changed()
          }}
        >
          <p>Its routes are removed as well. What waits to be sent there fails.</p>
        </Confirm>
      )}
    </section>
  )
}

function EditChannel(props: { channel: Channel | null; changed: () => Promise<unknown>; onClose: () => void }) {
  const kinds = useAsk(NotificationKinds, {}, { once: true })
  if (!kinds.data) return null
  return <ChannelForm {...props} kinds={kinds.data.notificationKinds} />
}

/** Texts have a form of their own. */
function withoutTemplates(schema: Schema): Schema {
  if (typeof schema === 'boolean' || !schema.properties) return schema
  const { templates: _, ...properties } = schema.properties
  return { ...schema, properties }
}

interface ChannelProps {
  channel: Channel | null
  changed: () => Promise<unknown>
  onClose: () => void
  kinds: NotificationKindsData['notificationKinds']
}

function ChannelForm({ channel, changed, onClose, kinds }: ChannelProps) {
  const [kind, setKind] = useState<NotificationKind>(channel?.kind ?? 'SLACK')
  const [name, setName] = useState(channel?.name ?? '')
  const [rate, setRate] = useState(channel?.rate ?? 20)
  const [enabled, setEnabled] = useState(channel?.enabled ?? true)
  const { templates, ...rest } = (channel?.config ?? {}) as Json & { templates?: Json }
  const [config, setConfig] = useState<Json>(rest as Json)
  const [tried, setTried] = useState(false)
  const id = useId()
  const chosen = kinds.find((k) => k.kind === kind)
  const schema = withoutTemplates((chosen?.schema ?? true) as Schema)
  const pruned = prune(schema, schema, withDefaults(schema, schema, config)) as Json
  const value = (templates ? { ...pruned, templates } : pruned) as Json
  const local = validate(schema, schema, pruned)
  const save = useChange(
    async () => accepted((await ask(PutNotificationChannel, { input: { name, kind, config: value, rate, enabled } })).putNotificationChannel),
    () => {
      announce(channel ? 'Channel changed' : 'Channel added')
      void changed()
      onClose()
    },
  )
  const findings = [...(tried ? local : []), ...findingsUnder(save.error, 'config')]
  return (
    <Dialog
      title={channel ? `Change ${channel.name}` : 'Add a channel'}
      submit="Save"
      busy={save.isPending}
      wide
      onSubmit={() => {
        setTried(true)
        if (local.length === 0) save.mutate(undefined)
      }}
      onClose={onClose}
    >
      {!channel && (
        <>
          <Field id={`${id}-name`} label="Name" problem={findingsUnder(save.error, 'name')[0]?.message}>
            <input id={`${id}-name`} aria-describedby={`${id}-name-notes`} required pattern="[a-z0-9][a-z0-9\-]*" maxLength={63} value={name} onChange={(e) => setName(e.target.value)} />
          </Field>
          <Field id={`${id}-kind`} label="Kind">
            <select
              id={`${id}-kind`}
              aria-describedby={`${id}-kind-notes`}
              value={kind}
              onChange={(e) => {
                setKind(e.target.value as NotificationKind)
                setConfig({})
                setTried(false)
              }}
            >
              {kinds.map((k) => (
                <option key={k.kind} value={k.kind}>
                  {k.kind.toLowerCase()}
                </option>
              ))}
            </select>
          </Field>
        </>
      )}
      <p>{chosen?.description}</p>
      <SchemaForm context={{ root: schema, driver: kind, findings, agents: [] }} value={pruned} onChange={setConfig} />
      <Field id={`${id}-rate`} label="Messages a minute, at most" problem={findingsUnder(save.error, 'rate')[0]?.message}>
        <input id={`${id}-rate`} aria-describedby={`${id}-rate-notes`} type="number" min={1} max={60} required value={rate} onChange={(e) => setRate(Number(e.target.value))} />
      </Field>
      <label>
        <input type="checkbox" checked={enabled} onChange={(e) => setEnabled(e.target.checked)} /> Switched on
      </label>
      <FormError error={save.error} shown={(path) => ['name', 'config', 'rate'].includes(path[0] ?? '')} />
    </Dialog>
  )
}

function Routes({ all, channels, changed }: { all: Route[]; channels: Channel[]; changed: () => Promise<unknown> }) {
  const [editing, setEditing] = useState<Route | 'new' | null>(null)
  const [removing, setRemoving] = useState<Route | null>(null)
  const [testing, setTesting] = useState<Route | null>(null)
  return (
    <section className="card" aria-labelledby="routes">
      <header className="line">
        <h2 id="routes">Routes</h2>
        {channels.length > 0 && (
          <button type="button" onClick={() => setEditing('new')}>
            Add a route
          </button>
        )}
      </header>
      {all.length === 0 ? (
        <p className="faint">Every channel is sent what matters by default.</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-label="Routes">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Route</th>
                <th scope="col">Channel</th>
                <th scope="col">State</th>
                <th scope="col">What and how</th>
                <th scope="col">Actions</th>
              </tr>
            </thead>
            <tbody>
              {all.map((r) => (
                <tr key={r.name}>
                  <th scope="row">{r.name}</th>
                  <td>{r.channel}</td>
                  <td>{r.enabled ? 'on' : 'off'}</td>
                  <td className="wrap mono">
                    {JSON.stringify(r.config)}
                    {r.problem && <p className="wrap">Its expression could not be evaluated, so it matched nothing: {r.problem}</p>}
                  </td>
                  <td className="buttons">
                    <button type="button" aria-label={`Test ${r.name}`} onClick={() => setTesting(r)}>
                      Test
                    </button>
                    <button type="button" aria-label={`Change ${r.name}`} onClick={() => setEditing(r)}>
                      Change
                    </button>
                    <button type="button" aria-label={`Remove ${r.name}`} onClick={() => setRemoving(r)}>
                      Remove
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {editing && <RouteForm route={editing === 'new' ? null : editing} channels={channels} changed={changed} onClose={() => setEditing(null)} />}
      {testing && (
        <Confirm
          title={`Test ${testing.name}`}
          submit="Send a test"
          tone="primary"
          done="A test message is on its way; the list of messages shows what became of it."
          onClose={() => setTesting(null)}
          send={async () => {
            accepted((await ask(TestNotificationRoute, { input: { name: testing.name } })).testNotificationRoute)
            await changed()
          }}
        >
          <p>A message that says that it is a test is sent to {testing.channel}.</p>
        </Confirm>
      )}
      {removing && (
        <Confirm
          title={`Remove ${removing.name}`}
          submit="Remove"
          reasoned
          done={`${removing.name} was removed.`}
          onClose={() => setRemoving(null)}
          send={async (reason) => {
            accepted((await ask(RemoveNotificationRoute, { input: { name: removing.name, reason } })).removeNotificationRoute)
            await changed()
          }}
        >
          <p>A channel without routes is sent what matters by default.</p>
        </Confirm>
      )}
    </section>
  )
}

const routeSchema = {
  type: 'object',
  additionalProperties: false,
  properties: {
    events: choice('Events', 'What is sent; without any, everything but the steps of rollouts and what is about environments and artifacts themselves.', [...moments, ...steps, ...forTools]),
    applications: texts('Applications', 'Only these, by name; * stands for any text.'),
    environments: texts('Environments', 'Only these, by name; * stands for any text.'),
    tiers: choice('Tiers', 'Only environments of these tiers.', ['development', 'qa', 'staging', 'production']),
    severities: choice('Severities', 'Only what matters so much.', ['low', 'normal', 'high']),
    labels: {
      type: 'object',
      title: 'Labels',
      description: 'Only applications that have all of these.',
      additionalProperties: { type: 'string', maxLength: 63 },
    },
    expression: {
      type: 'string',
      title: 'Expression',
      maxLength: 4096,
      description: 'A condition in CEL over event, application, environments, tiers, severity, rollout, subject, reason, principal and labels.',
    },
    digest_minutes: { type: 'integer', title: 'Digest every so many minutes', minimum: 0, maximum: 1440, description: '0 sends at once.' },
    escalate: {
      type: 'array',
      title: 'Escalation',
      description: 'Channels that a question is sent to if nobody answers it.',
      maxItems: 5,
      items: {
        type: 'object',
        additionalProperties: false,
        required: ['after_minutes', 'channel'],
        properties: {
          after_minutes: { type: 'integer', title: 'After minutes', minimum: 1, maximum: 10080, description: 'Counted from the question.' },
          channel: { type: 'string', title: 'Channel', minLength: 1, maxLength: 63, description: 'The name of another channel.' },
        },
      },
    },
    quiet,
  },
} as unknown as Schema

function RouteForm({ route, channels, changed, onClose }: { route: Route | null; channels: Channel[]; changed: () => Promise<unknown>; onClose: () => void }) {
  const [name, setName] = useState(route?.name ?? '')
  const [channel, setChannel] = useState(route?.channel ?? channels[0]?.name ?? '')
  const [enabled, setEnabled] = useState(route?.enabled ?? true)
  const [config, setConfig] = useState<Json>((route?.config ?? {}) as Json)
  const [tried, setTried] = useState(false)
  const id = useId()
  const value = prune(routeSchema, routeSchema, config) as Json
  const local = validate(routeSchema, routeSchema, value)
  const save = useChange(
    async () => accepted((await ask(PutNotificationRoute, { input: { name, channel, config: value, enabled } })).putNotificationRoute),
    () => {
      announce(route ? 'Route changed' : 'Route added')
      void changed()
      onClose()
    },
  )
  const findings = [...(tried ? local : []), ...findingsUnder(save.error, 'config')]
  return (
    <Dialog
      title={route ? `Change ${route.name}` : 'Add a route'}
      submit="Save"
      busy={save.isPending}
      wide
      onSubmit={() => {
        setTried(true)
        if (local.length === 0) save.mutate(undefined)
      }}
      onClose={onClose}
    >
      {!route && (
        <Field id={`${id}-name`} label="Name" problem={findingsUnder(save.error, 'name')[0]?.message}>
          <input id={`${id}-name`} aria-describedby={`${id}-name-notes`} required pattern="[a-z0-9][a-z0-9\-]*" maxLength={63} value={name} onChange={(e) => setName(e.target.value)} />
        </Field>
      )}
      <Field id={`${id}-channel`} label="Channel" problem={findingsUnder(save.error, 'channel')[0]?.message}>
        <select id={`${id}-channel`} aria-describedby={`${id}-channel-notes`} value={channel} onChange={(e) => setChannel(e.target.value)}>
          {channels.map((c) => (
            <option key={c.name}>{c.name}</option>
          ))}
        </select>
      </Field>
      <SchemaForm context={{ root: routeSchema, driver: 'route', findings, agents: [] }} value={value} onChange={setConfig} />
      <label>
        <input type="checkbox" checked={enabled} onChange={(e) => setEnabled(e.target.checked)} /> Switched on
      </label>
      <FormError error={save.error} shown={(path) => ['name', 'config', 'channel'].includes(path[0] ?? '')} />
    </Dialog>
  )
}

/** One's own, and all for those who administer. They are linked from the chat. */
function Accounts({ all, changed }: { all: Account[]; changed: () => Promise<unknown> }) {
  const [removing, setRemoving] = useState<Account | null>(null)
  if (all.length === 0) return null
  return (
    <section className="card" aria-labelledby="accounts">
      <h2 id="accounts">Chat accounts</h2>
      <div className="scroll" tabIndex={0} role="region" aria-label="Chat accounts">
        <table className="list">
          <thead>
            <tr>
              <th scope="col">Account</th>
              <th scope="col">Workspace</th>
              <th scope="col">Answers as</th>
              <th scope="col">Good for</th>
              <th scope="col">Linked</th>
              <th scope="col">Actions</th>
            </tr>
          </thead>
          <tbody>
            {all.map((a) => (
              <tr key={a.number}>
                <th scope="row">
                  <bdi>{a.name}</bdi> <span className="faint">{a.kind.toLowerCase()}</span>
                </th>
                <td className="wrap">{a.workspace}</td>
                <td>
                  <bdi>{a.member}</bdi>
                </td>
                <td>{a.permissions.map((p) => p.toLowerCase()).join(', ')}</td>
                <td>{a.linkedAt && <Ago at={a.linkedAt} />}</td>
                <td className="buttons">
                  <button type="button" aria-label={`Unlink ${a.name}`} onClick={() => setRemoving(a)}>
                    Unlink
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {removing && (
        <Confirm
          title={`Unlink ${removing.name}`}
          submit="Unlink"
          reasoned
          done={`${removing.name} was unlinked.`}
          onClose={() => setRemoving(null)}
          send={async (reason) => {
            accepted((await ask(UnlinkChatAccount, { input: { number: removing.number, reason } })).unlinkChatAccount)
            await changed()
          }}
        >
          <p>Its user answers nothing in the chat until the account is linked again.</p>
        </Confirm>
      )}
    </section>
  )
}

interface MessagesProps {
  all: Message[]
  state: NotificationState | ''
  setState: (state: NotificationState | '') => void
  changed: () => Promise<unknown>
}

function Messages({ all, state, setState, changed }: MessagesProps) {
  const id = useId()
  const retry = useChange(
    async (number: number) => accepted((await ask(RetryNotification, { input: { number } })).retryNotification),
    () => {
      announce('It is sent again')
      void changed()
    },
  )
  return (
    <section className="card" aria-labelledby="messages">
      <header className="line">
        <h2 id="messages">Messages</h2>
        <label htmlFor={`${id}-state`}>
          Show{' '}
          <select id={`${id}-state`} value={state} onChange={(e) => setState(e.target.value as NotificationState | '')}>
            <option value="">all</option>
            <option value="FAILED">failed</option>
            <option value="PENDING">to be sent</option>
            <option value="SENT">sent</option>
          </select>
        </label>
      </header>
      <FormError error={retry.error} shown={() => false} />
      {all.length === 0 ? (
        <p className="faint">No messages.</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-label="Messages">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Message</th>
                <th scope="col">Channel</th>
                <th scope="col">State</th>
                <th scope="col">When</th>
                <th scope="col">Actions</th>
              </tr>
            </thead>
            <tbody>
              {all.map((m) => (
                <tr key={m.number}>
                  <th scope="row" className="wrap">
                    {m.rollout ? <Link to={`/rollouts/${m.rollout.id}`}>{m.title || m.rollout.id}</Link> : m.title || `Message ${m.number}`}
                    {m.openings.map((o) => (
                      <p className="faint" key={o.openedAt + o.member}>
                        Link opened by <bdi>{o.member}</bdi> <Ago at={o.openedAt} />
                        {o.answeredAt && ', and answered'}
                      </p>
                    ))}
                  </th>
                  <td>
                    {m.channel || <span className="faint">removed</span>} {m.route && <span className="faint">{m.route}</span>}
                  </td>
                  <td className="wrap">
                    <Chip {...states[m.state]} />
                    {m.error && (
                      <p className="reason" dir="auto">
                        {m.error}
                      </p>
                    )}
                    {m.templateError && (
                      <p className="reason" dir="auto">
                        With the default, because of a template: {m.templateError}
                      </p>
                    )}
                  </td>
                  <td>
                    <Ago at={m.sentAt ?? m.createdAt} />
                  </td>
                  <td className="buttons">
                    {m.state === 'FAILED' && (
                      <button type="button" aria-label={`Send again: message ${m.number}`} disabled={retry.isPending} onClick={() => retry.mutate(m.number)}>
                        Send again
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  )
}
