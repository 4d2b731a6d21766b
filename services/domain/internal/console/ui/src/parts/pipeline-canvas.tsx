// A pipeline on a canvas: its steps in order, to be dragged, or moved and removed by keyboard. It is a list to screen readers, and the
// list editor beside it does the same with buttons.
import { useRef, useState, type DragEvent, type KeyboardEvent } from 'react'
import { environmentOf, titleOf, type Step, type StepType } from '../form/pipeline-steps'
import { isRecord } from '../form/schema'
import { span } from '../logic/time'
import { Icon } from './icon'

export interface Palette {
  environments: string[]
  /** What people call an environment of a name. */
  called: (environment: string) => string
  types: Array<Exclude<StepType, 'deploy'>>
}

interface CanvasProps {
  steps: Step[]
  chosen: string
  /** How many findings each step has. */
  wrong: number[]
  palette: Palette
  onChoose: (key: string) => void
  onMove: (from: number, to: number) => void
  onRemove: (index: number) => void
  /** What is an environment's name or a type of step. */
  onAdd: (what: string, at: number) => void
}

const icons: Record<string, string> = { deploy: 'environment', approval: 'gate', pause: 'clock', analysis: 'degraded', job: 'clock' }
const kinds: Record<string, string> = { deploy: 'Deploy', approval: 'Approval', pause: 'Pause', analysis: 'Analysis', job: 'Job' }

const stepMedia = 'application/x-lockstep-step'
const newMedia = 'application/x-lockstep-new'

export function PipelineCanvas(props: CanvasProps) {
  const { steps, chosen, wrong, palette, onChoose, onMove, onRemove, onAdd } = props
  const [gap, setGap] = useState<number | null>(null)
  const ref = useRef<HTMLOListElement>(null)
  const focus = (index: number) => requestAnimationFrame(() => ref.current?.querySelectorAll<HTMLElement>('.node')[index]?.focus())
  const drop = (e: DragEvent) => {
    e.preventDefault()
    const at = gap ?? steps.length
    const from = e.dataTransfer.getData(stepMedia)
    const what = e.dataTransfer.getData(newMedia)
    setGap(null)
    // A step that goes right leaves its own place first.
    if (from !== '') onMove(Number(from), at > Number(from) ? at - 1 : at)
    else if (what !== '') onAdd(what, at)
  }
  const over = (e: DragEvent, index: number) => {
    if (!e.dataTransfer.types.some((t) => t === stepMedia || t === newMedia)) return
    e.preventDefault()
    const box = e.currentTarget.getBoundingClientRect()
    const vertical = box.width > 0 && getComputedStyle(ref.current ?? e.currentTarget).flexDirection === 'column'
    const after = vertical ? e.clientY > box.top + box.height / 2 : e.clientX > box.left + box.width / 2
    setGap(index + (after ? 1 : 0))
  }
  const keys = (e: KeyboardEvent, index: number) => {
    const step = e.key === 'ArrowRight' || e.key === 'ArrowDown' ? 1 : e.key === 'ArrowLeft' || e.key === 'ArrowUp' ? -1 : 0
    if (step !== 0) {
      e.preventDefault()
      const to = Math.max(0, Math.min(steps.length - 1, index + step))
      if (e.altKey || e.shiftKey) onMove(index, to)
      focus(to)
    } else if (e.key === 'Delete' || e.key === 'Backspace') {
      e.preventDefault()
      onRemove(index)
      focus(Math.max(0, index - 1))
    }
  }
  return (
    <div className="canvas-frame">
      <div className="palette" role="group" aria-label="Add a step">
        {palette.environments.map((name) => (
          <Chip key={name} what={name} icon="environment" word={palette.called(name)} onAdd={() => onAdd(name, steps.length)} />
        ))}
        {palette.types.map((type) => (
          <Chip key={type} what={type} icon={icons[type] ?? 'pending'} word={kinds[type] ?? type} onAdd={() => onAdd(type, steps.length)} />
        ))}
      </div>
      <div
        className="canvas"
        onDragOver={(e) => {
          if (e.dataTransfer.types.some((t) => t === stepMedia || t === newMedia)) e.preventDefault()
        }}
        onDrop={drop}
        onDragEnd={() => setGap(null)}
      >
        <ol ref={ref} aria-label="Steps, in order">
          {steps.map((s, i) => (
            <li key={s.key} className={gap === i ? 'gap' : gap === i + 1 && i === steps.length - 1 ? 'gap-after' : undefined} onDragOver={(e) => over(e, i)}>
              <button
                type="button"
                className={`node ${String(s.body.type)}`}
                draggable
                aria-pressed={s.key === chosen}
                aria-describedby="canvas-keys"
                onClick={() => onChoose(s.key)}
                onFocus={() => onChoose(s.key)}
                onKeyDown={(e) => keys(e, i)}
                onDragStart={(e) => {
                  e.dataTransfer.setData(stepMedia, String(i))
                  e.dataTransfer.effectAllowed = 'move'
                }}
              >
                <span className="node-kind">
                  <Icon name={icons[String(s.body.type)] ?? 'pending'} /> {kinds[String(s.body.type)] ?? String(s.body.type)}
                  <span className="visually-hidden">, step {i + 1} of {steps.length},</span>
                </span>
                <strong>{titleOf(s, palette.called)}</strong>
                <Detail step={s} called={palette.called} />
                {(wrong[i] ?? 0) > 0 && (
                  <span className="node-wrong">
                    <Icon name="failed" /> {wrong[i] === 1 ? '1 error' : `${wrong[i]} errors`}
                  </span>
                )}
              </button>
            </li>
          ))}
          {steps.length === 0 && <li className="nothing faint">Drag a step here, or press it.</li>}
        </ol>
      </div>
      <p id="canvas-keys" className="help">
        Drag a step to move it. By keyboard: arrows go from step to step, Shift and an arrow move it, Delete removes it.
      </p>
    </div>
  )
}

function Chip({ what, icon, word, onAdd }: { what: string; icon: string; word: string; onAdd: () => void }) {
  return (
    <button
      type="button"
      draggable
      aria-label={`Add ${word}`}
      onClick={onAdd}
      onDragStart={(e) => {
        e.dataTransfer.setData(newMedia, what)
        e.dataTransfer.effectAllowed = 'copy'
      }}
    >
      <Icon name="plus" /> <Icon name={icon} /> {word}
    </button>
  )
}

/** What a step does, in a line or two. */
function Detail({ step: { body }, step, called }: { step: Step; called: Palette['called'] }) {
  if (body.type === 'pause') return <span className="faint">{span(Number(body.duration ?? 0) * 1000)}</span>
  if (body.type === 'approval') return <span className="faint clip">{typeof body.quorum === 'number' && body.quorum > 1 ? `${body.quorum} people` : 'one person'}{typeof body.group === 'string' && body.group ? ` of ${body.group}` : ''}</span>
  if (body.type === 'job') return <span className="faint clip">{typeof body.environment === 'string' && body.environment ? `in ${called(body.environment)}` : 'in no environment yet'}</span>
  if (body.type !== 'deploy' || !environmentOf(step)) return null
  const gates = (Array.isArray(body.gates) ? body.gates : []).filter(isRecord)
  return (
    <span className="node-gates">
      {isRecord(body.approval) && (
        <span className="faint">
          <Icon name="gate" /> asks first
        </span>
      )}
      {gates.length === 0 ? <span className="faint">all at once</span> : gates.map((g, i) => <span key={i} className="weight">{String(g.weight ?? '?')} %</span>)}
    </span>
  )
}
