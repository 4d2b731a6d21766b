// Text that somebody types, told on after a pause; when it is changed from elsewhere (a link, the way back), that counts.
import { useEffect, useRef, useState } from 'react'

const rest = 250

export function useTyped(value: string, tell: (value: string) => void): [text: string, set: (text: string) => void] {
  const [text, setText] = useState(value)
  const told = useRef(value)
  const last = useRef(tell)
  useEffect(() => {
    last.current = tell
  })
  useEffect(() => {
    if (value === told.current) return
    told.current = value
    setText(value)
  }, [value])
  useEffect(() => {
    if (text === told.current) return
    const timer = setTimeout(() => {
      told.current = text
      last.current(text)
    }, rest)
    return () => clearTimeout(timer)
  }, [text])
  return [text, setText]
}
