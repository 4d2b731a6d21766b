// One policy set: its text with what the server has to say about it, what it would have decided, and its versions.
import { createTwoFilesPatch } from 'diff'
import { lazy, Suspense, useDeferredValue, useEffect, useId, useMemo, useState } from 'react'
import { Link, useNavigate, useParams } from 'react-router'
import { accepted, ask } from '../api/client'
import {
  CheckPolicies, GrantTargets, PolicyVersions, PolicyVocabulary, PutPolicySet, SimulatePolicies, type PolicyMode, type PolicyVersionsData, type PolicyVocabularyData,
  type SimulatePoliciesData,
} from '../api/generated'
import { useAsk, useChange } from '../api/hooks'
import { parseLines } from '../logic/details'
import { vocabulary } from '../logic/cedar'
import { announce } from '../parts/announce'
import type { Finding } from '../parts/cedar-editor'
import { Dialog } from '../parts/dialog'
import { Diffs } from '../parts/diff'
import { Field, findingsUnder, FormError } from '../parts/form'
import { Icon } from '../parts/icon'
import { Loading, NotThere, Page, Waiting } from '../parts/page'
import { Reason } from '../parts/reason'
import { Ago } from '../parts/time'
import { useUnsaved } from '../parts/unsaved'
import { Mode, scopeWords } from './policies'
import { displayed } from '../logic/names'

const CedarEditor = lazy(() => import('../parts/cedar-editor'))

type Version = PolicyVersionsData['policySetVersions'][number]

const verdicts = { ALLOW: 'allowed', NEEDS_APPROVAL: 'approval required', DENY: 'denied' } as const

export default function PolicyPage() {
  const { name = '' } = useParams()
  const isNew = name === ''
  const query = useAsk(PolicyVersions, { name }, { enabled: !isNew })
  const known = useAsk(PolicyVocabulary, {}, { once: true })
  const versions = isNew ? [] : query.data?.policySetVersions
  if (!versions || !known.data) {
    return (
      <Page title="Policy set">
        <Waiting query={versions ? known : query} what="policies" />
      </Page>
    )
  }
  if (!isNew && versions.length === 0) return <NotThere what="policy set" to="/policies" list="All policies" />
  return <Editing key={name} versions={versions} known={known.data.policyVocabulary} />
}

function Editing({ versions, known }: { versions: Version[]; known: PolicyVocabularyData['policyVocabulary'] }) {
  const latest = versions[0] ?? null
  // The version that the text was taken from.
  const [base, setBase] = useState({ version: latest?.version ?? 0, text: latest?.text ?? '' })
  const [text, setText] = useState(latest?.text ?? '')
  const [open, setOpen] = useState<'save' | 'simulate' | null>(null)
  const dirty = text !== base.text
  const overtaken = latest !== null && latest.version > base.version
  useEffect(() => {
    if (!overtaken || dirty) return
    setBase(latest)
    setText(latest.text)
  }, [overtaken, dirty, latest])
  const saved = useUnsaved(dirty)
  const asked = useSettled(text)
  const check = useAsk(CheckPolicies, { text: asked }, { enabled: asked.trim() !== '', once: true })
  const answer = asked.trim() === '' ? undefined : check.data?.checkPolicies
  const findings = useMemo<Finding[]>(
    () => [...(answer?.problems ?? []).map((p) => ({ ...p, severity: 'error' as const })), ...(answer?.warnings ?? []).map((p) => ({ ...p, severity: 'warning' as const }))],
    [answer],
  )
  const words = useMemo(() => vocabulary([known.controls, known.calls], known.annotations, namesOf(known.names)), [known])
  const wrong = (answer?.problems.length ?? 0) > 0
  const done = (version: number) => {
    setBase({ version, text })
    if (!latest) saved() // the page of the set is another one
  }
  return (
    <Page
      title={latest?.name ?? 'New policy set'}
      above={<Link to="/policies">policies</Link>}
      lead={
        latest && (
          <p className="line">
            <Mode mode={latest.mode} /> <span>version {latest.version}</span> <span>concerns {scopeWords(latest)}</span> <span>days and hours in {latest.timeZone}</span>
          </p>
        )
      }
      beside={
        <>
          <button type="button" disabled={text.trim() === '' || wrong} onClick={() => setOpen('simulate')}>
            What would it have decided?
          </button>
          <button type="button" className="primary" disabled={text.trim() === '' || (wrong && (dirty || !latest))} onClick={() => setOpen('save')}>
            {latest && !dirty ? 'Change the state' : 'Save'}
          </button>
        </>
      }
    >
      <div className="stack">
        {overtaken && dirty && (
          <div role="alert" className="banner wait">
            <Icon name="degraded" />
            <p>
              <bdi>{latest.author}</bdi> saved version {latest.version} while you were editing. Saving replaces it: see below what changed.
            </p>
          </div>
        )}
        <section className="card" aria-labelledby="text">
          <header className="line">
            <h2 id="text">Policies</h2>
            {!latest && <Templates all={known.templates} choose={setText} asks={dirty} />}
          </header>
          <Suspense fallback={<Loading what="editor" />}>
            <CedarEditor label="Policies, in Cedar" value={text} findings={findings} vocabulary={words} onChange={setText} />
          </Suspense>
          <Findings all={findings} checked={answer !== undefined && asked === text} error={check.error} />
        </section>
        {versions.length > 0 && <Versions all={versions} take={setText} />}
      </div>
      {open === 'save' && <Save latest={latest} text={text} wrong={wrong} done={done} onClose={() => setOpen(null)} />}
      {open === 'simulate' && <Simulation latest={latest} text={text} onClose={() => setOpen(null)} />}
    </Page>
  )
}

/** By the types of entities that have them. */
function namesOf(names: PolicyVocabularyData['policyVocabulary']['names']): Map<string, string[]> {
  return new Map([
    ['Application', names.applications],
    ['Environment', names.environments],
    ['Group', names.groups],
    ['Agent', names.agents],
    ['Driver', names.drivers],
    ['Service', names.services],
    ['Function', names.functions],
  ])
}

/** A value once it has not changed for half a second, so that the server is not asked at each key. */
function useSettled(value: string): string {
  const [settled, setSettled] = useState(value)
  const deferred = useDeferredValue(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(deferred), 500)
    return () => clearTimeout(timer)
  }, [deferred])
  return settled
}

function Templates({ all, choose, asks }: { all: PolicyVocabularyData['policyVocabulary']['templates']; choose: (text: string) => void; asks: boolean }) {
  const id = useId()
  return (
    <span className="line templates">
      <label htmlFor={id}>Begin with a template</label>
      <select
        id={id}
        value=""
        onChange={(e) => {
          const template = all.find((t) => t.name === e.target.value)
          if (template && (!asks || window.confirm('Replace the text?'))) choose(template.text)
        }}
      >
        <option value="">Choose…</option>
        {all.map((t) => (
          <option key={t.name} value={t.name}>
            {t.summary}
          </option>
        ))}
      </select>
    </span>
  )
}

function Findings({ all, checked, error }: { all: Finding[]; checked: boolean; error: Error | null }) {
  if (error) return <FormError error={error} shown={() => false} />
  if (all.length === 0) return checked ? <p className="faint">Nothing is wrong with it.</p> : null
  return (
    <ul className="findings" aria-label="What is wrong">
      {all.map((f, i) => (
        <li key={i} className={f.severity === 'error' ? 'problem' : 'help'}>
          <Icon name={f.severity === 'error' ? 'failed' : 'degraded'} />{' '}
          {f.line !== null && (
            <strong>
              Line {f.line}
              {f.column !== null && `, column ${f.column}`}:{' '}
            </strong>
          )}
          {f.message}
        </li>
      ))}
    </ul>
  )
}

function Versions({ all, take }: { all: Version[]; take: (text: string) => void }) {
  const [shown, setShown] = useState<number | null>(null)
  const diff = (v: Version) => {
    const before = all.find((other) => other.version === v.version - 1)
    const name = `version ${v.version}`
    return [{ path: name, diff: createTwoFilesPatch(name, name, before?.text ?? '', v.text), truncated: false }]
  }
  return (
    <section className="card" aria-labelledby="versions">
      <h2 id="versions">Versions</h2>
      <ol className="plain" reversed>
        {all.map((v) => (
          <li key={v.version}>
            <p className="line">
              <strong>{v.version}</strong> <Mode mode={v.mode} />
              <span>
                <Ago at={v.createdAt} /> by <bdi>{v.author}</bdi>
              </span>
              <span className="faint">{v.reason}</span>
              <button type="button" aria-expanded={shown === v.version} onClick={() => setShown(shown === v.version ? null : v.version)}>
                What changed
              </button>
              {v !== all[0] && (
                <button type="button" onClick={() => take(v.text)}>
                  Edit this version
                </button>
              )}
            </p>
            {shown === v.version && <Diffs changes={diff(v)} nothing="Only its state changed." />}
          </li>
        ))}
      </ol>
    </section>
  )
}

interface SaveProps {
  latest: Version | null
  text: string
  /** The text is not valid any more: the set can only be switched off. */
  wrong: boolean
  done: (version: number) => void
  onClose: () => void
}

function Save({ latest, text, wrong, done, onClose }: SaveProps) {
  const id = useId()
  const navigate = useNavigate()
  const [name, setName] = useState(latest?.name ?? '')
  const [scope, setScope] = useState('')
  const [labels, setLabels] = useState('')
  const [mode, setMode] = useState<PolicyMode>(wrong ? 'OFF' : (latest?.mode ?? 'DRY_RUN'))
  const [timeZone, setTimeZone] = useState(latest?.timeZone ?? Intl.DateTimeFormat().resolvedOptions().timeZone)
  const [reason, setReason] = useState('')
  const targets = useAsk(GrantTargets, {}, { enabled: !latest })
  const change = useChange(
    async () => {
      const [kind, of] = scope.split('/')
      const applicationLabels = kind === 'labels' ? parseLines(labels.replaceAll(',', '\n')).values : null
      const input = { name, text, mode, timeZone, reason, application: kind === 'application' ? of! : null, environment: kind === 'environment' ? of! : null, applicationLabels }
      return accepted((await ask(PutPolicySet, { input })).putPolicySet)
    },
    (payload) => {
      announce(`Version ${payload.policySet?.version ?? ''} of ${name} was saved.`)
      done(payload.policySet?.version ?? 0)
      onClose()
      if (!latest) void navigate(`/policies/${encodeURIComponent(name)}`)
    },
  )
  const problem = (field: string) => findingsUnder(change.error, field)[0]?.message
  return (
    <Dialog
      title={latest ? `Save ${latest.name}` : 'Save the policy set'}
      submit="Save"
      busy={change.isPending}
      disabled={name.trim() === '' || reason.trim() === ''}
      onSubmit={() => change.mutate(undefined)}
      onClose={onClose}
    >
      {!latest && (
        <>
          <Field id={`${id}-name`} label="Name" help="Lower-case letters, digits and hyphens." problem={problem('name')}>
            <input id={`${id}-name`} aria-describedby={`${id}-name-notes`} required maxLength={63} pattern="[a-z0-9](?:[a-z0-9\-]*[a-z0-9])?" value={name} onChange={(e) => setName(e.target.value)} />
          </Field>
          <Field id={`${id}-scope`} label="Concerns" help="It never changes. Inner sets can only make stricter what outer ones decide." problem={problem('application') ?? problem('environment')}>
            <select id={`${id}-scope`} aria-describedby={`${id}-scope-notes`} value={scope} onChange={(e) => setScope(e.target.value)}>
              <option value="">the whole organization</option>
              <option value="labels">applications with labels</option>
              <optgroup label="An application">
                {targets.data?.applications.nodes.map((a) => (
                  <option key={a.id} value={`application/${a.name}`}>
                    {a.name}
                  </option>
                ))}
              </optgroup>
              <optgroup label="An environment">
                {targets.data?.environments.nodes.map((e) => (
                  <option key={e.id} value={`environment/${e.name}`}>
                    {displayed(e)}
                  </option>
                ))}
              </optgroup>
            </select>
          </Field>
          {scope === 'labels' && (
            <Field id={`${id}-labels`} label="Labels" help="All have to match, such as tier=critical, team=web." problem={problem('applicationLabels')}>
              <input id={`${id}-labels`} aria-describedby={`${id}-labels-notes`} required value={labels} onChange={(e) => setLabels(e.target.value)} />
            </Field>
          )}
        </>
      )}
      <Field id={`${id}-mode`} label="State" problem={problem('mode')} help="Rollouts under way keep the versions that they were created with, and the new one counts as well.">
        <select id={`${id}-mode`} aria-describedby={`${id}-mode-notes`} value={mode} onChange={(e) => setMode(e.target.value as PolicyMode)}>
          {!wrong && <option value="DRY_RUN">Dry run: it decides nothing; what it would decide is recorded</option>}
          {!wrong && <option value="ENFORCE">Enforced: it counts</option>}
          {latest && <option value="OFF">Off: it is not evaluated</option>}
        </select>
      </Field>
      <Field id={`${id}-zone`} label="Time zone" help="The time zone of days and hours in its policies." problem={problem('timeZone')}>
        <input id={`${id}-zone`} aria-describedby={`${id}-zone-notes`} required value={timeZone} onChange={(e) => setTimeZone(e.target.value)} />
      </Field>
      <Reason value={reason} onChange={setReason} required />
      <FormError error={change.error} shown={(path) => ['name', 'mode', 'timeZone', 'application', 'environment', 'applicationLabels'].includes(path[0] ?? '')} />
    </Dialog>
  )
}

const day = 24 * 60 * 60 * 1000

function Simulation({ latest, text, onClose }: { latest: Version | null; text: string; onClose: () => void }) {
  const id = useId()
  const [days, setDays] = useState(30)
  const [found, setFound] = useState<SimulatePoliciesData['simulatePolicies'] | null>(null)
  const run = useChange(
    async () => {
      const input = { name: latest?.name ?? 'not-saved-yet', application: null, environment: null, text, timeZone: latest?.timeZone ?? '', since: new Date(Date.now() - days * day).toISOString() }
      return (await ask(SimulatePolicies, { input })).simulatePolicies
    },
    (answer) => setFound(answer),
  )
  return (
    <Dialog wide title="What would it have decided?" submit="Evaluate" busy={run.isPending} onSubmit={() => run.mutate(undefined)} onClose={onClose}>
      <p>Decides again what was decided, as if this text had counted then. Nothing is changed.{!latest && ' The set is taken to concern the whole organization.'}</p>
      <Field id={`${id}-days`} label="Days back">
        <input id={`${id}-days`} aria-describedby={`${id}-days-notes`} type="number" min={1} max={365} required value={days} onChange={(e) => setDays(Number(e.target.value))} />
      </Field>
      <FormError error={run.error} shown={() => false} />
      {found && (
        <div role="status">
          <p>
            {found.differentCount} of {found.evaluated} decisions would have been different, and {found.differentCallCount} of {found.evaluatedCalls} calls of Functions
            {found.sampledCalls > 0 && `, ${found.sampledCalls} of which are a sample of those that all policies had permitted`}
            {found.truncated && '; there were more decisions than could be evaluated'}.
          </p>
          {found.differentCalls.length > 0 && (
            <ul className="plain" aria-label="Calls">
              {found.differentCalls.map((d) => (
                <li key={d.callRequest.id}>
                  <p>
                    {d.callRequest.rollout ? <Link to={`/rollouts/${d.callRequest.rollout.id}`}>{d.callRequest.workflowId}</Link> : d.callRequest.workflowId}: {d.callRequest.function}{' '}
                    <span className="faint">
                      <Ago at={d.callRequest.createdAt} />
                    </span>
                  </p>
                  <p>
                    was {verdicts[d.callRequest.verdict]}, would have been <strong>{verdicts[d.verdict]}</strong>: {d.summary}
                  </p>
                </li>
              ))}
            </ul>
          )}
          {found.different.length > 0 && (
            <ul className="plain">
              {found.different.map((d) => (
                <li key={d.decision.id}>
                  <p>
                    {d.rollout ? (
                      <Link to={`/rollouts/${d.rollout.id}`}>
                        {d.rollout.application.name}: {d.rollout.versionSet.name}
                      </Link>
                    ) : (
                      'A rollout'
                    )}
                    {d.decision.gateId ? ` at ${d.decision.gateId}` : ', its creation'}, <Ago at={d.decision.createdAt} />: {verdicts[d.decision.verdict]} then,{' '}
                    <strong>{verdicts[d.verdict]}</strong> by this text
                  </p>
                  <p className="faint">{d.summary}</p>
                </li>
              ))}
            </ul>
          )}
        </div>
      )}
    </Dialog>
  )
}
