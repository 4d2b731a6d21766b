// What the member has sent to themselves: where it reaches them, what they have subscribed to, and what became of each message.
import { useId, useState } from 'react'
import { Link } from 'react-router'
import { accepted, ask } from '../api/client'
import { MyNotifications as Operation, PutMyNotification, RemoveMyNotification, RetryMyNotification, type MyNotificationsData } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { SchemaForm } from '../form/SchemaForm'
import { prune, validate, type Json, type Schema } from '../form/schema'
import { announce } from '../parts/announce'
import { Confirm } from '../parts/confirm'
import { Dialog } from '../parts/dialog'
import { Field, findingsUnder, FormError } from '../parts/form'
import { choice, moments, quiet, states, steps } from '../parts/notified'
import { Empty, Page, Waiting } from '../parts/page'
import { Chip } from '../parts/state'
import { Ago } from '../parts/time'

type Channel = MyNotificationsData['myNotificationChannels'][number]
type Subscription = MyNotificationsData['myNotifications'][number]
type Message = MyNotificationsData['myNotificationMessages'][number]

export default function MyNotifications() {
  const query = useAsk(Operation, {}, { live: (d) => d.myNotificationMessages.some((m) => ['PENDING', 'SENDING'].includes(m.state)) })
  const changed = () => query.refetch()
  const data = query.data
  return (
    <Page title="My notifications" lead={<p>What is sent to you alone, at an address that is proved to be yours.</p>}>
      {!data ? (
        <Waiting query={query} what="your notifications" />
      ) : (
        <div className="stack">
          <Channels all={data.myNotificationChannels} />
          <Subscriptions all={data.myNotifications} channels={data.myNotificationChannels} changed={changed} />
          <Messages all={data.myNotificationMessages} changed={changed} />
        </div>
      )}
    </Page>
  )
}

function Channels({ all }: { all: Channel[] }) {
  return (
    <section className="card" aria-labelledby="mine-channels">
      <h2 id="mine-channels">Where you are reached</h2>
      {all.length === 0 ? (
        <Empty icon="inbox" title="No channel for members yet">
          <p>Those who configure Lockstep add one: of e-mail, Slack or Mattermost, with the setting personal.</p>
        </Empty>
      ) : (
        <ul>
          {all.map((c) => (
            <li key={c.name}>
              {c.name} <span className="faint">{c.kind.toLowerCase()}</span>: {c.reaches ? <bdi>{c.reaches}</bdi> : <span className="reason">{c.problem}</span>}
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}

function Subscriptions({ all, channels, changed }: { all: Subscription[]; channels: Channel[]; changed: () => Promise<unknown> }) {
  const [editing, setEditing] = useState<Subscription | 'new' | null>(null)
  const [removing, setRemoving] = useState<Subscription | null>(null)
  return (
    <section className="card" aria-labelledby="subscriptions">
      <header className="line">
        <h2 id="subscriptions">Subscriptions</h2>
        {channels.length > 0 && (
          <button type="button" onClick={() => setEditing('new')}>
            Subscribe
          </button>
        )}
      </header>
      {all.length === 0 ? (
        <p className="faint">Nothing is sent to you.</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-label="Subscriptions">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Subscription</th>
                <th scope="col">Channel</th>
                <th scope="col">State</th>
                <th scope="col">What and how</th>
                <th scope="col">Actions</th>
              </tr>
            </thead>
            <tbody>
              {all.map((s) => (
                <tr key={s.name}>
                  <th scope="row">{s.name}</th>
                  <td>{s.channel}</td>
                  <td>{s.enabled ? 'on' : 'off'}</td>
                  <td className="wrap mono">{JSON.stringify(s.config)}</td>
                  <td className="buttons">
                    <button type="button" aria-label={`Change ${s.name}`} onClick={() => setEditing(s)}>
                      Change
                    </button>
                    <button type="button" aria-label={`Remove ${s.name}`} onClick={() => setRemoving(s)}>
                      Remove
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {editing && <SubscriptionForm subscription={editing === 'new' ? null : editing} channels={channels} changed={changed} onClose={() => setEditing(null)} />}
      {removing && (
        <Confirm
          title={`Remove ${removing.name}`}
          submit="Remove"
          done={`${removing.name} was removed.`}
          onClose={() => setRemoving(null)}
          send={async () => {
            accepted((await ask(RemoveMyNotification, { input: { name: removing.name } })).removeMyNotification)
            await changed()
          }}
        >
          <p>It is not sent to you any more.</p>
        </Confirm>
      )}
    </section>
  )
}

const schema = {
  type: 'object',
  additionalProperties: false,
  properties: {
    only: { type: 'string', title: 'Only', enum: ['begun', 'waiting', 'may_approve'], description: 'Rollouts that you have begun; those that you take part in; or questions that you may answer.' },
    application: { type: 'string', title: 'Application', maxLength: 256, description: 'Only this one, by name.' },
    environment: { type: 'string', title: 'Environment', maxLength: 256, description: 'Only this one, by name.' },
    events: choice('Events', 'What is sent; without any, everything but the steps of rollouts.', [...moments, ...steps]),
    tiers: choice('Tiers', 'Only environments of these tiers.', ['development', 'qa', 'staging', 'production']),
    severities: choice('Severities', 'Only what matters so much.', ['low', 'normal', 'high']),
    digest_minutes: { type: 'integer', title: 'Digest every so many minutes', minimum: 0, maximum: 1440, description: '0 sends at once.' },
    quiet,
  },
} as unknown as Schema

interface FormProps {
  subscription: Subscription | null
  channels: Channel[]
  changed: () => Promise<unknown>
  onClose: () => void
}

function SubscriptionForm({ subscription, channels, changed, onClose }: FormProps) {
  const [name, setName] = useState(subscription?.name ?? '')
  const [channel, setChannel] = useState(subscription?.channel ?? (channels.find((c) => c.reaches) ?? channels[0])?.name ?? '')
  const [enabled, setEnabled] = useState(subscription?.enabled ?? true)
  const [config, setConfig] = useState<Json>((subscription?.config ?? {}) as Json)
  const [tried, setTried] = useState(false)
  const id = useId()
  const value = prune(schema, schema, config) as Json
  const local = validate(schema, schema, value)
  const save = useChange(
    async () => accepted((await ask(PutMyNotification, { input: { name, channel, config: value, enabled } })).putMyNotification),
    () => {
      announce(subscription ? 'Subscription changed' : 'Subscribed')
      void changed()
      onClose()
    },
  )
  const findings = [...(tried ? local : []), ...findingsUnder(save.error, 'config')]
  return (
    <Dialog
      title={subscription ? `Change ${subscription.name}` : 'Subscribe'}
      submit="Save"
      busy={save.isPending}
      wide
      onSubmit={() => {
        setTried(true)
        if (local.length === 0) save.mutate(undefined)
      }}
      onClose={onClose}
    >
      {!subscription && (
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
      <SchemaForm context={{ root: schema, driver: 'subscription', findings, agents: [] }} value={value} onChange={setConfig} />
      <label>
        <input type="checkbox" checked={enabled} onChange={(e) => setEnabled(e.target.checked)} /> Switched on
      </label>
      <FormError error={save.error} shown={(path) => ['name', 'config', 'channel'].includes(path[0] ?? '')} />
    </Dialog>
  )
}

function Messages({ all, changed }: { all: Message[]; changed: () => Promise<unknown> }) {
  const retry = useChange(
    async (number: number) => accepted((await ask(RetryMyNotification, { input: { number } })).retryMyNotification),
    () => {
      announce('It is sent again')
      void changed()
    },
  )
  return (
    <section className="card" aria-labelledby="my-messages">
      <h2 id="my-messages">Sent to you</h2>
      <FormError error={retry.error} shown={() => false} />
      {all.length === 0 ? (
        <p className="faint">No messages.</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-label="Sent to you">
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
                  </th>
                  <td>{m.channel || <span className="faint">removed</span>}</td>
                  <td className="wrap">
                    <Chip {...states[m.state]} />
                    {m.error && (
                      <p className="reason" dir="auto">
                        {m.error}
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
