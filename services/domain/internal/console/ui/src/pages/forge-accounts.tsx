// The accounts at forges that members have linked, and codes to link one's own. A code is shown once, and works for one account only.
import { useId, useState } from 'react'
import { accepted, ask } from '../api/client'
import { MakeForgeAccountCode, UnlinkForgeAccount, type ForgeHooksData } from '../api/generated'
import { useChange } from '../api/hooks'
import { Confirm } from '../parts/confirm'
import { Dialog } from '../parts/dialog'
import { Field, findingsUnder, FormError } from '../parts/form'
import { Secret } from '../parts/secret'
import { Ago } from '../parts/time'

type Account = ForgeHooksData['forgeAccounts'][number]
type Hook = ForgeHooksData['forgeHooks'][number]

interface AccountsProps {
  all: Account[]
  hooks: Hook[]
  changed: () => Promise<unknown>
}

export function ForgeAccounts({ all, hooks, changed }: AccountsProps) {
  const [linking, setLinking] = useState(false)
  const [comment, setComment] = useState<string | null>(null)
  const [removing, setRemoving] = useState<Account | null>(null)
  const taking = hooks.filter((h) => h.commands)
  if (all.length === 0 && taking.length === 0) {
    return null
  }
  return (
    <section className="card" aria-labelledby="accounts">
      <h2 id="accounts">Linked accounts</h2>
      <p className="faint">Commands that a linked account writes into comments on the pull request of a proposed change, such as /lockstep approve, are its member’s.</p>
      {comment && (
        <>
          <Secret what="The comment" secret={comment} onDone={() => setComment(null)} />
          <p>Write it with your account on a pull request of a repository of the hook, within 10 minutes. It works once, and for no other account.</p>
        </>
      )}
      {all.length === 0 ? (
        <p className="faint">No account is linked.</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-labelledby="accounts">
          <table className="list">
            <thead>
              <tr>
                <th scope="col">Account</th>
                <th scope="col">Member</th>
                <th scope="col">Linked</th>
                <th scope="col">Actions</th>
              </tr>
            </thead>
            <tbody>
              {all.map((a) => (
                <tr key={a.number}>
                  <th scope="row">
                    <bdi>{a.name}</bdi> <span className="faint">{a.user}</span>
                    <div className="faint wrap">{a.place}</div>
                  </th>
                  <td>
                    <bdi>{a.member}</bdi>
                  </td>
                  <td>
                    <Ago at={a.linkedAt} />
                  </td>
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
      )}
      {taking.length > 0 && (
        <p className="line">
          <button type="button" onClick={() => setLinking(true)}>
            Link your account
          </button>
        </p>
      )}
      {linking && <LinkForm hooks={taking} onMade={setComment} onClose={() => setLinking(false)} />}
      {removing && (
        <Confirm
          title={`Unlink ${removing.name}`}
          submit="Unlink"
          reasoned
          done={`${removing.name} was unlinked.`}
          onClose={() => setRemoving(null)}
          send={async (reason) => {
            accepted((await ask(UnlinkForgeAccount, { input: { number: removing.number, reason } })).unlinkForgeAccount)
            await changed()
          }}
        >
          <p>Its commands are refused until the account is linked again.</p>
        </Confirm>
      )}
    </section>
  )
}

interface LinkFormProps {
  hooks: Hook[]
  onMade: (comment: string) => void
  onClose: () => void
}

function LinkForm({ hooks, onMade, onClose }: LinkFormProps) {
  const [hook, setHook] = useState(hooks[0]?.number ?? 0)
  const [account, setAccount] = useState('')
  const id = useId()
  const make = useChange(
    async () => accepted((await ask(MakeForgeAccountCode, { input: { hook, account } })).makeForgeAccountCode),
    (p) => {
      if (p.made) onMade(p.made.comment)
      onClose()
    },
  )
  return (
    <Dialog title="Link your account" submit="Get a code" busy={make.isPending} onSubmit={() => make.mutate(undefined)} onClose={onClose}>
      <Field id={`${id}-hook`} label="Hook" problem={findingsUnder(make.error, 'hook')[0]?.message}>
        <select id={`${id}-hook`} aria-describedby={`${id}-hook-notes`} value={hook} onChange={(e) => setHook(Number(e.target.value))}>
          {hooks.map((h) => (
            <option key={h.number} value={h.number}>
              {h.number}: {h.repositories.join(', ')}
            </option>
          ))}
        </select>
      </Field>
      <Field id={`${id}-account`} label="Your account" help="What the forge calls it, such as ann." problem={findingsUnder(make.error, 'account')[0]?.message}>
        <input id={`${id}-account`} aria-describedby={`${id}-account-notes`} required value={account} onChange={(e) => setAccount(e.target.value)} />
      </Field>
      <FormError error={make.error} shown={(path) => path[0] === 'hook' || path[0] === 'account'} />
    </Dialog>
  )
}
