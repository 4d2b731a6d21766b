// Asks before changes that were not saved are lost: by a link, the browser's history, a reload or a closed tab.
import { useCallback, useEffect, useRef } from 'react'
import { useBlocker } from 'react-router'

const question = 'Leave this page? Your changes are not saved.'

/**
 * While dirty holds, leaving the page asks first; another query of the same page is no other page. Call what is returned once the changes are
 * saved: it holds from then on, before anything is drawn again.
 */
export function useUnsaved(dirty: boolean): () => void {
  const saved = useRef(false)
  const blocker = useBlocker(({ currentLocation, nextLocation }) => dirty && !saved.current && currentLocation.pathname !== nextLocation.pathname)
  useEffect(() => {
    if (blocker.state !== 'blocked') return
    if (window.confirm(question)) blocker.proceed()
    else blocker.reset()
  }, [blocker])
  useEffect(() => {
    if (!dirty) return
    const ask = (e: BeforeUnloadEvent) => {
      if (!saved.current) e.preventDefault()
    }
    addEventListener('beforeunload', ask)
    return () => removeEventListener('beforeunload', ask)
  }, [dirty])
  return useCallback(() => {
    saved.current = true
  }, [])
}
