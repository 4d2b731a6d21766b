// A unified diff, line by line, without what only Git reads.

export interface DiffLine {
  kind: 'same' | 'added' | 'removed' | 'place'
  text: string
}

/** The lines that people read of a diff: those of its hunks, each with where it is. */
export function hunks(diff: string): DiffLine[] {
  const lines: DiffLine[] = []
  let inHunk = false
  for (const line of diff.split('\n')) {
    if (line.startsWith('@@')) inHunk = true
    if (!inHunk || line === '') continue
    if (line.startsWith('@@')) lines.push({ kind: 'place', text: /^@@ [^@]* @@/.exec(line)?.[0] ?? line })
    else if (line.startsWith('+')) lines.push({ kind: 'added', text: line.slice(1) })
    else if (line.startsWith('-')) lines.push({ kind: 'removed', text: line.slice(1) })
    else lines.push({ kind: 'same', text: line.slice(1) })
  }
  return lines
}

/** The same file may be reported by several services that are in it. */
export function byPath<Change extends { path: string }>(all: Change[]): Change[] {
  return [...new Map(all.map((c) => [c.path, c])).values()]
}
