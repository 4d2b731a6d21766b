// What changes in files, as a unified diff: the sign says what comes and goes, colour only repeats it.
import type { ChangeFields } from '../api/generated'
import { byPath, hunks, type DiffLine } from '../logic/unified'

const signs = { same: ' ', added: '+', removed: '-', place: '' } as const
const spoken = { same: '', added: 'added: ', removed: 'removed: ', place: '' } as const

export function Diffs({ changes, nothing }: { changes: ChangeFields[]; nothing: string }) {
  const files = byPath(changes)
  if (files.length === 0) return <p className="faint">{nothing}</p>
  return files.map((f) => (
    <figure key={f.path} className="diff">
      <figcaption>
        <code>{f.path}</code>
      </figcaption>
      <pre tabIndex={0} aria-label={`What changes in ${f.path}`}>
        {hunks(f.diff).map((line, i) => (
          <Line key={i} line={line} />
        ))}
      </pre>
      {f.truncated && <p className="faint">The rest is left out: it is too long to be shown here. The commit has all of it.</p>}
    </figure>
  ))
}

function Line({ line }: { line: DiffLine }) {
  return (
    <span className={`line ${line.kind}`}>
      <span aria-hidden="true">{signs[line.kind]}</span>
      <span className="visually-hidden">{spoken[line.kind]}</span>
      {`${line.text}\n`}
    </span>
  )
}
