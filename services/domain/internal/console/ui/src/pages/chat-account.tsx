// Links a chat account to the viewer: the link comes from the chat, and nothing is linked before the viewer has looked at it and confirmed.
import { useState } from 'react'
import { Link } from 'react-router'
import { accepted, ask } from '../api/client'
import { ChatAccountOfLink, LinkChatAccount, Viewer } from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { FormError } from '../parts/form'
import { Empty, Page, Waiting } from '../parts/page'

export default function ChatAccountPage() {
  const [token] = useState(() => window.location.hash.slice(1))
  const query = useAsk(ChatAccountOfLink, { token }, { once: true })
  const viewer = useAsk(Viewer, {})
  const link = useChange(async () => accepted((await ask(LinkChatAccount, { input: { token } })).linkChatAccount))
  const account = query.data?.chatAccountOfLink
  const member = viewer.data?.viewer.member?.name ?? ''
  if (link.data) {
    return (
      <Page title="Chat account linked">
        <Empty icon="completed" title="Linked">
          <p>
            What <bdi>{account?.name}</bdi> answers in the chat is your answer now. Press the button, or send the command, in the chat again.
          </p>
          <p>
            <Link to="/notifications">Linked chat accounts</Link>
          </p>
        </Empty>
      </Page>
    )
  }
  return (
    <Page title="Link a chat account">
      {!account ? (
        <Waiting query={query} what="chat account" />
      ) : (
        <section className="card stack">
          <p>
            Is <strong dir="auto">{account.name}</strong> ({account.user}) in {account.kind === 'SLACK' ? 'Slack' : 'Mattermost'} (<bdi>{account.workspace}</bdi>) your own account?
          </p>
          <p>
            What it answers is an answer in your name, <bdi>{member}</bdi>, from then on: by buttons and by slash commands, where you may {account.permissions.map((p) => (p === 'DEPLOY' ? 'begin rollouts' : p.toLowerCase())).join(', ')}. If you have not pressed a button or sent a command in that chat yourself just now, close this page: another person has sent you the link.
          </p>
          {account.kind === 'MATTERMOST' && (
            <p>Mattermost vouches for who sends a command: those who administer its server, or know the token of its command, can send commands as every member who has linked an account there.</p>
          )}
          <FormError error={link.error} shown={() => false} />
          <p className="buttons">
            <button type="button" className="primary" disabled={link.isPending} onClick={() => link.mutate(undefined)}>
              It is mine: link it
            </button>
            <Link className="button" to="/">
              It is not mine
            </Link>
          </p>
        </section>
      )}
    </Page>
  )
}
