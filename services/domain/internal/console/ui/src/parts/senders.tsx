// The hooks and tokens through which registries and CI report artifacts, with what was left out of their deliveries and why.
import { ArtifactSenders, type ArtifactSendersData } from '../api/generated'
import { useAsk } from '../api/hooks'
import { useFirst } from './fold'
import { sentence } from './form'
import { Waiting } from './page'
import { Chip } from './state'
import { Ago, Due } from './time'

type Sender = ArtifactSendersData['artifactSenders'][number]

/** For those who may configure sources: nobody else is answered. */
export function Senders() {
  const query = useAsk(ArtifactSenders, {})
  const senders = query.data?.artifactSenders
  return (
    <section aria-labelledby="senders" className="senders">
      <h2 id="senders">Webhooks and CI tokens</h2>
      <p className="faint">Where registries and CI report artifacts, and what was refused of their last deliveries.</p>
      {!senders ? (
        <Waiting query={query} what="webhooks" />
      ) : senders.length === 0 ? (
        <p className="faint">None configured: versions come from polling alone. The configuration of the registry service adds them.</p>
      ) : (
        <ul className="cards">
          {senders.map((s) => (
            <li key={`${s.format} ${s.name}`} className="card">
              <One sender={s} />
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}

function One({ sender }: { sender: Sender }) {
  const { name, format, repositories, expiresAt, lastArtifact, lastPublishedAt, waiting, refused } = sender
  const [shown, more] = useFirst(refused, 5, 'refusals')
  const title = name || (format === 'token' ? 'Token without a name' : format)
  return (
    <>
      <header className="line">
        <h3>
          {title} {format !== title && <span className="faint">{format}</span>}
        </h3>
        {refused.length > 0 ? <Chip tone="bad" icon="failed" word={refused.length === 1 ? '1 refusal' : `${refused.length} refusals`} /> : <Chip tone="good" icon="completed" word="Nothing refused" />}
        {waiting > 0 && <Chip tone="wait" icon="clock" word={`${waiting} not confirmed yet`} />}
      </header>
      <p className="faint wrap">
        {repositories.length > 0 ? `May report ${repositories.join(', ')}` : 'May report any repository'}
        {expiresAt && (
          <>
            {' '}
            · expires <Due at={expiresAt} />
          </>
        )}
        {lastArtifact && lastPublishedAt && (
          <>
            {' '}
            · last <span className="mono">{lastArtifact.replace(/@.*/, '')}</span>, <Ago at={lastPublishedAt} />
          </>
        )}
      </p>
      {refused.length > 0 && (
        <ul className="refusals" aria-label={`Last refusals of ${title}`}>
          {shown.map((r) => (
            <li key={`${r.what} ${r.reason}`}>
              <p>
                <span className="mono wrap">{r.what}</span>{' '}
                <span className="faint">
                  <Ago at={r.lastAt} />
                  {r.times > 1 && (
                    <>
                      , {r.times} times since <Ago at={r.firstAt} />
                    </>
                  )}
                </span>
              </p>
              <p className="reason">{sentence(r.reason)}</p>
            </li>
          ))}
          {more && <li>{more}</li>}
        </ul>
      )}
    </>
  )
}
