// What programs of the organization can call: Functions of its workers, and those that come with the engine.
import { useId } from 'react'
import { Link, useSearchParams } from 'react-router'
import { WorkflowFunctions, type FunctionEffect, type WorkflowFunctionsData } from '../api/generated'
import { useAsk } from '../api/hooks'
import { Page, Waiting } from '../parts/page'
import { Chip } from '../parts/state'
import { Ago } from '../parts/time'

type Function = WorkflowFunctionsData['workflowFunctions'][number]

const effects: Record<FunctionEffect, string> = { READS: 'changes nothing', CHANGES: 'changes something', TAKES_BACK: 'takes back what a rollout has begun', SPECIAL: '' }

export default function Functions() {
  const id = useId()
  const [search, setSearch] = useSearchParams()
  const text = search.get('text') ?? ''
  const query = useAsk(WorkflowFunctions, {})
  const found = query.data?.workflowFunctions.filter((f) => f.name.includes(text.trim().toLowerCase()))
  return (
    <Page title="Functions" above={<Link to="/workflows">workflows</Link>} lead={<p>What programs can call: Functions of this organization’s workers, and those that come with the engine.</p>}>
      <p className="line">
        <label htmlFor={id}>Name contains</label>
        <input id={id} type="search" value={text} onChange={(e) => setSearch(e.target.value === '' ? {} : { text: e.target.value }, { replace: true })} />
      </p>
      {!found ? (
        <Waiting query={query} what="functions" />
      ) : (
        <div className="stack">
          <Group title="Of workers" all={found.filter((f) => f.worker)} nothing={text ? 'None with this name.' : 'No worker has declared a Function here yet.'} />
          <Group title="Of the engine" all={found.filter((f) => !f.worker)} nothing="None with this name." />
        </div>
      )}
    </Page>
  )
}

function Group({ title, all, nothing }: { title: string; all: Function[]; nothing: string }) {
  const id = useId()
  return (
    <section className="card" aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {all.length === 0 && <p className="faint">{nothing}</p>}
      {all.map((f) => (
        <details key={f.name}>
          <summary>
            <code>{f.name}</code> {f.worker && <Workers count={f.connected} />} <span className="faint">{effects[f.effect]}</span>
          </summary>
          {f.registeredAt && (
            <p>
              Declared <Ago at={f.registeredAt} />
              {f.registeredByWorker && (
                <>
                  {' '}
                  by worker <b>{f.registeredByWorker}</b>
                  {f.registeredByVersion && <> {f.registeredByVersion}</>}
                  {f.registeredBy && <> with the token {f.registeredBy}</>}
                </>
              )}
              .
            </p>
          )}
          <p className="wrap lines" dir="auto">
            {f.doc || 'It has no documentation.'}
          </p>
          <Schema title="Arguments" of={f.name} schema={f.argumentsSchema} />
          <Schema title="Answer" of={f.name} schema={f.resultSchema} />
        </details>
      ))}
    </section>
  )
}

/** Whether anything would carry a call out now. */
function Workers({ count }: { count: number }) {
  return count > 0 ? (
    <Chip tone="good" icon="agent" word={count === 1 ? '1 worker connected' : `${count} workers connected`} />
  ) : (
    <Chip tone="wait" icon="offline" word="No worker connected: calls wait" />
  )
}

function Schema({ title, of, schema }: { title: string; of: string; schema: unknown }) {
  if (schema === null || schema === undefined) return null
  return (
    <>
      <h3>{title}</h3>
      <pre className="scroll" tabIndex={0} role="region" aria-label={`${title} of ${of}`}>
        {JSON.stringify(schema, null, 2)}
      </pre>
    </>
  )
}
