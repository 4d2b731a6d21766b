// What the link of a message opens: the question, with everything that is needed to decide. Opening decides nothing.
import { useEffect, useRef } from 'react'
import { Link, useNavigate } from 'react-router'
import { accepted, ask } from '../api/client'
import { OpenNotificationLink, type OpenNotificationLinkData } from '../api/generated'
import { useChange } from '../api/hooks'
import { FormError } from '../parts/form'
import { Empty, Loading, Page } from '../parts/page'
import { Ago } from '../parts/time'

type Opened = NonNullable<OpenNotificationLinkData['openNotificationLink']['link']>

export default function Answer() {
  const navigate = useNavigate()
  const sent = useRef(false)
  const open = useChange(
    async (token: string) => accepted((await ask(OpenNotificationLink, { input: { token } })).openNotificationLink),
    (payload) => {
      if (payload.link?.state === 'OPENED') void navigate(questionOf(payload.link), { replace: true })
    },
  )
  useEffect(() => {
    if (sent.current) return // it works once
    sent.current = true
    open.mutate(window.location.hash.slice(1))
  })
  const link = open.data?.link
  if (!open.error && (!link || link.state === 'OPENED')) return <Loading what="question" />
  return (
    <Page title="A question from a message">
      <FormError error={open.error} shown={() => false} />
      {link && (
        <Empty icon="gate" title={titles[link.state]}>
          <p>{link.openedAt && link.state === 'USED' ? <Used link={link} /> : 'Nothing has changed by opening the link.'}</p>
        </Empty>
      )}
      <p>
        <Link to={link ? questionOf(link) : '/waiting'}>{link ? 'Go to the question' : 'What waits for me'}</Link>
      </p>
    </Page>
  )
}

const titles: Record<Opened['state'], string> = {
  OPENED: 'Opened',
  USED: 'This link was opened before',
  ANSWERED: 'This question is not open any more',
  EXPIRED: 'This link is too old',
}

function Used({ link }: { link: Opened }) {
  return (
    <>
      <bdi>{link.openedBy}</bdi> opened it <Ago at={link.openedAt!} />. A link works once; the question can still be answered there.
    </>
  )
}

/** The page on which a question is answered. */
function questionOf(link: Opened): string {
  return link.rollout ? `/rollouts/${link.rollout.id}` : '/waiting'
}
