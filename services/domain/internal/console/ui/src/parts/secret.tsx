// What is shown once: a token, a credential. It is in no cache and no address; when it is put away it is gone.
import { useEffect, useRef, useState } from 'react'
import { Icon } from './icon'

export function Secret({ what, secret, onDone }: { what: string; secret: string; onDone: () => void }) {
  const ref = useRef<HTMLDivElement>(null)
  const [copied, setCopied] = useState<boolean | null>(null)
  useEffect(() => ref.current?.focus(), [])
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(secret)
      setCopied(true)
    } catch {
      setCopied(false)
    }
  }
  return (
    <div className="secret" ref={ref} tabIndex={-1} role="group" aria-label={what}>
      <p>
        <strong>{what} is shown now, and never again.</strong> Store it where it belongs before you continue.
      </p>
      <code>{secret}</code>
      <p className="line">
        <button type="button" onClick={() => void copy()}>
          <Icon name="copy" /> Copy
        </button>
        <button type="button" onClick={onDone}>
          I have kept it
        </button>
        {copied !== null && <span role="status">{copied ? 'Copied.' : 'This browser does not let the page copy: select it and copy it yourself.'}</span>}
      </p>
    </div>
  )
}
