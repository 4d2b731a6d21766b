// Text that a person types, passed on after a pause; when it is changed from elsewhere (a link, the back button), that wins.
import { useEffect, useRef, useState } from 'react'

const rest = 250

export function useTyped(value: string, change: (value: string) => void): [text: string, set: (text: string) => void] {
  const [text, setText] = useState(value)
  const passed = useRef(value)
  const last = useRef(change)
  useEffect(() => {
    last.current = change
  })
  useEffect(() => {
    if (value === passed.current) return
    passed.current = value
    setText(value)
  }, [value])
  useEffect(() => {
    if (text === passed.current) return
    const timer = setTimeout(() => {
      passed.current = text
      last.current(text)
    }, rest)
    return () => clearTimeout(timer)
  }, [text])
  return [text, setText]
}
