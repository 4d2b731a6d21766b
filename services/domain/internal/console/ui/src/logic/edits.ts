// What a trigger of kind event edits before it begins a rollout, as its configuration says. It is read without trust: what this build does
// not know is left out.

export interface Edits {
  repository: string
  branch: string
  proposes: boolean
  files: Array<{ path: string; place: string; from: string }>
}

const places: Record<string, string> = { yaml: 'YAML', json: 'JSON', hcl: 'HCL', regex: 'the regular expression' }

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {}
}

const text = (value: unknown) => (typeof value === 'string' ? value : '')

/** Null for a trigger that edits nothing. */
export function editsOf(config: unknown): Edits | null {
  const edit = record(config).edit
  if (edit === undefined || edit === null) return null
  const { repository, branch, pull_request, files } = record(edit)
  return {
    repository: text(repository),
    branch: text(branch),
    proposes: pull_request === true,
    files: (Array.isArray(files) ? files : []).map(record).map((f) => {
      const kind = Object.keys(places).find((k) => text(f[k]) !== '')
      return { path: text(f.path), place: kind ? `${places[kind]} ${text(f[kind])}` : '', from: text(f.from) }
    }),
  }
}
