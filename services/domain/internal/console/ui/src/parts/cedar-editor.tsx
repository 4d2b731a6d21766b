// An editor for policies: numbered lines, completion from the schema, and the server's findings where they are. It stands in a shadow root,
// since the content security policy allows no style elements in the page.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type CompletionContext, type CompletionResult } from '@codemirror/autocomplete'
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands'
import { bracketMatching, HighlightStyle, StreamLanguage, syntaxHighlighting } from '@codemirror/language'
import { lintGutter, setDiagnostics, type Diagnostic } from '@codemirror/lint'
import { Annotation, EditorState } from '@codemirror/state'
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view'
import { tags } from '@lezer/highlight'
import { useEffect, useRef } from 'react'
import { complete, type Vocabulary } from '../logic/cedar'

export interface Finding {
  line: number | null
  column: number | null
  message: string
  severity: 'error' | 'warning'
}

interface EditorProps {
  label: string
  value: string
  findings: Finding[]
  vocabulary: Vocabulary | null
  onChange: (text: string) => void
}

const words = /^(?:permit|forbid|when|unless|principal|action|resource|context|in|is|has|like|if|then|else|true|false)\b/

/** Only what helps the eye: the server reads the text. */
const cedar = StreamLanguage.define({
  name: 'cedar',
  token(stream) {
    if (stream.eatSpace()) return null
    if (stream.match(/^\/\/.*/)) return 'comment'
    if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return 'string'
    if (stream.match(/^@\w+/)) return 'meta'
    if (stream.match(words)) return 'keyword'
    if (stream.match(/^\d+/)) return 'number'
    if (stream.match(/^[A-Za-z_]\w*(?=::)/)) return 'typeName'
    if (!stream.match(/^[A-Za-z_]\w*/)) stream.next()
    return null
  },
  languageData: { commentTokens: { line: '//' }, closeBrackets: { brackets: ['(', '{', '[', '"'] } },
})

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: 'var(--accent)' },
  { tag: tags.string, color: 'var(--good)' },
  { tag: tags.number, color: 'var(--busy)' },
  { tag: tags.typeName, color: 'var(--busy)' },
  { tag: tags.meta, color: 'var(--wait)' },
  { tag: tags.comment, color: 'var(--faint)' },
])

const look = EditorView.theme({
  '&': { color: 'var(--text)', backgroundColor: 'var(--card)', border: '1px solid var(--line-strong)', borderRadius: '7px' },
  '&.cm-focused': { outline: '2px solid var(--accent)', outlineOffset: '1px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', fontSize: '0.8125rem', lineHeight: '1.55', minHeight: '18rem', maxHeight: '70vh' },
  '.cm-gutters': { backgroundColor: 'var(--sunk)', color: 'var(--faint)', border: 'none' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'color-mix(in srgb, var(--accent-soft) 45%, transparent)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'var(--accent-soft)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-tooltip': { backgroundColor: 'var(--card)', color: 'var(--text)', border: '1px solid var(--line-strong)' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent)', color: 'var(--on-accent)' },
  // Instead of the images of the library, which the content security policy refuses.
  '.cm-lintRange': { backgroundImage: 'none', textDecoration: 'underline wavy', textUnderlineOffset: '3px' },
  '.cm-lintRange-error': { textDecorationColor: 'var(--bad)' },
  '.cm-lintRange-warning': { textDecorationColor: 'var(--wait)' },
  '.cm-lint-marker-error': { content: '"✕"', color: 'var(--bad)' },
  '.cm-lint-marker-warning': { content: '"!"', color: 'var(--wait)' },
  '.cm-completionDetail': { color: 'var(--faint)' },
  '.cm-tooltip-autocomplete ul li[aria-selected] .cm-completionDetail': { color: 'inherit' },
})

/** Marks a text that was given from outside. */
const given = Annotation.define<boolean>()

export default function CedarEditor({ label, value, findings, vocabulary, onChange }: EditorProps) {
  const place = useRef<HTMLDivElement>(null)
  const view = useRef<EditorView | null>(null)
  const latest = useRef({ vocabulary, onChange })
  latest.current = { vocabulary, onChange }
  const first = useRef({ label, value })
  // Texts that were handed on and have not returned as the value yet: by then more may have been typed, which they must not replace.
  const sent = useRef<string[]>([])

  useEffect(() => {
    const root = place.current!.shadowRoot ?? place.current!.attachShadow({ mode: 'open' })
    const offer = (c: CompletionContext): CompletionResult | null => {
      const known = latest.current.vocabulary
      if (!known) return null
      const { choices, replaces } = complete(known, c.state.sliceDoc(0, c.pos))
      if (choices.length === 0) return null
      return {
        from: c.pos - replaces,
        options: choices.map(({ label, detail, info, kind }) => ({ label, detail, type: kind, ...(info && { info }) })),
        validFor: /^[\w.-]*$/,
      }
    }
    const editor = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: first.current.value,
        extensions: [
          lineNumbers(), history(), drawSelection(), highlightActiveLine(), bracketMatching(), closeBrackets(), lintGutter(), cedar,
          syntaxHighlighting(colours), look, autocompletion({ override: [offer] }), EditorView.lineWrapping,
          // Tab leaves the editor, so that the keyboard is not caught in it.
          keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap]),
          EditorView.contentAttributes.of({ 'aria-label': first.current.label }),
          EditorView.updateListener.of((u) => {
            if (!u.docChanged || u.transactions.some((t) => t.annotation(given))) return
            const text = u.state.doc.toString()
            sent.current.push(text)
            latest.current.onChange(text)
          }),
        ],
      }),
    })
    view.current = editor
    return () => editor.destroy()
  }, [])

  useEffect(() => {
    const editor = view.current
    const returned = sent.current.lastIndexOf(value)
    if (returned >= 0) {
      sent.current.splice(0, returned + 1)
      return
    }
    sent.current = []
    if (!editor || editor.state.doc.toString() === value) return
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value }, annotations: given.of(true) })
  }, [value])

  useEffect(() => {
    const editor = view.current
    if (!editor) return
    const { doc } = editor.state
    const marks = findings.map((f): Diagnostic => {
      const line = doc.line(Math.min(Math.max(f.line ?? 1, 1), doc.lines))
      const from = Math.min(line.from + Math.max((f.column ?? 1) - 1, 0), line.to)
      return { from, to: line.to, severity: f.severity, message: f.message }
    })
    editor.dispatch(setDiagnostics(editor.state, marks))
  }, [findings])

  return <div ref={place} className="editor" />
}
