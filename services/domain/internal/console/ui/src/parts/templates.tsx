// What a channel says of an event: templates of the organization, with a preview of what would be sent. Nothing is saved before a person does.
import { useId, useState } from 'react'
import { accepted, ask } from '../api/client'
import { NotificationPreview, PutNotificationChannel, type NotificationMoment, type NotificationPreviewData, type NotificationsData } from '../api/generated'
import { useChange } from '../api/hooks'
import { announce } from './announce'
import { Dialog } from './dialog'
import { Field, findingsUnder, FormError } from './form'
import { forTools, moments, steps } from './notified'
import { Reason } from './reason'

type Channel = NotificationsData['notificationChannels'][number]
type Preview = NotificationPreviewData['notificationPreview']
type Templates = Record<string, { title?: string; text?: string }>

const templatesOf = (config: unknown): Templates => (config as { templates?: Templates }).templates ?? {}

/** The templates with those of one event replaced; an event without any is left out. */
function withTemplate(all: Templates, event: string, title: string, text: string): Templates {
  const { [event]: _, ...others } = all
  const one = { ...(title.trim() && { title }), ...(text.trim() && { text }) }
  return Object.keys(one).length === 0 ? others : { ...others, [event]: one }
}

export function TemplatesForm({ channel, changed, onClose }: { channel: Channel; changed: () => Promise<unknown>; onClose: () => void }) {
  const saved = templatesOf(channel.config)
  const [event, setEvent] = useState(moments[0]!)
  const [title, setTitle] = useState(saved[event]?.title ?? '')
  const [text, setText] = useState(saved[event]?.text ?? '')
  const [reason, setReason] = useState('')
  const [shown, setShown] = useState<Preview | null>(null)
  const id = useId()
  const preview = useChange(
    async () => (await ask(NotificationPreview, { channel: channel.name, event: event.toUpperCase() as NotificationMoment, title, text })).notificationPreview,
    setShown,
  )
  const save = useChange(
    async () => {
      const config = { ...(channel.config as object), templates: withTemplate(saved, event, title, text) }
      accepted((await ask(PutNotificationChannel, { input: { name: channel.name, kind: channel.kind, config, rate: channel.rate, enabled: channel.enabled, reason } })).putNotificationChannel)
      await changed() // the next form begins with what was saved
    },
    () => {
      announce('Texts saved')
      onClose()
    },
  )
  const problem = (part: string) => findingsUnder(save.error, 'config', 'templates', event, part)[0]?.message
  const choose = (next: string) => {
    setEvent(next)
    setTitle(saved[next]?.title ?? '')
    setText(saved[next]?.text ?? '')
    setShown(null)
  }
  return (
    <Dialog title={`Texts of ${channel.name}`} submit="Save" busy={save.isPending} wide onSubmit={() => save.mutate(undefined)} onClose={onClose}>
      <p>
        Expressions are between <code>{'{['}</code> and <code>{']}'}</code>, such as <code>{'{[ .application ]}'}</code> or <code>{'{[ index .lines 0 ]}'}</code>. What is empty has the default.
      </p>
      <Field id={`${id}-event`} label="Event">
        <select id={`${id}-event`} aria-describedby={`${id}-event-notes`} value={event} onChange={(e) => choose(e.target.value)}>
          {[...moments, ...steps, ...forTools].map((m) => (
            <option key={m} value={m}>
              {m.replaceAll('_', ' ')}
              {saved[m] ? ' (changed)' : ''}
            </option>
          ))}
        </select>
      </Field>
      <Field id={`${id}-title`} label="Title" optional problem={problem('title')}>
        <input id={`${id}-title`} aria-describedby={`${id}-title-notes`} maxLength={4096} value={title} onChange={(e) => setTitle(e.target.value)} />
      </Field>
      <Field id={`${id}-text`} label="Text" optional problem={problem('text')} help="Each line is one of the message; at most 12.">
        <textarea id={`${id}-text`} aria-describedby={`${id}-text-notes`} rows={5} maxLength={4096} value={text} onChange={(e) => setText(e.target.value)} />
      </Field>
      <p>
        <button type="button" disabled={preview.isPending} onClick={() => preview.mutate(undefined)}>
          Preview
        </button>
      </p>
      <FormError error={preview.error} shown={() => false} />
      <div role="status">{shown && <Shown preview={shown} />}</div>
      <Reason value={reason} onChange={setReason} />
      <FormError error={save.error} shown={(path) => path[1] === 'templates' && path[2] === event} />
    </Dialog>
  )
}

function Shown({ preview }: { preview: Preview }) {
  return (
    <section className="card" aria-label="Preview">
      {preview.problem && (
        <p className="problem" dir="auto">
          The default would be sent: {preview.problem}
        </p>
      )}
      <h3 dir="auto">{preview.title}</h3>
      {preview.lines.map((l, i) => (
        <p key={i} dir="auto">
          {l}
        </p>
      ))}
      <details>
        <summary>As it would be sent</summary>
        <pre tabIndex={0} aria-label="As it would be sent">{JSON.stringify(preview.message, null, 2)}</pre>
      </details>
    </section>
  )
}
