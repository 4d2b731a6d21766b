// What changed between two version sets: source by source, because a source has one version in a set.
import type { SetFields } from '../api/generated'
import { displayed } from './names'

type Entry = SetFields['entries'][number]

export interface Change {
  key: string
  service: string
  source: string
  before: Entry['version'] | null
  after: Entry['version'] | null
  kind: 'changed' | 'same' | 'added' | 'removed'
}

export function sourceName(entry: Pick<Entry['artifactSource'], 'sourceRef' | 'sourceConfig'>): string {
  const config = entry.sourceConfig as { image?: unknown } | null
  return typeof config?.image === 'string' ? config.image : entry.sourceRef
}

export function difference(before: SetFields | null, after: SetFields): Change[] {
  const old = new Map((before?.entries ?? []).map((e) => [e.artifactSource.id, e]))
  const changes = after.entries.map((e): Change => {
    const was = old.get(e.artifactSource.id)?.version ?? null
    old.delete(e.artifactSource.id)
    const kind = was === null ? 'added' : was.digest === e.version.digest ? 'same' : 'changed'
    return { key: e.artifactSource.id, service: displayed(e.service), source: sourceName(e.artifactSource), before: was, after: e.version, kind }
  })
  for (const e of old.values()) {
    changes.push({ key: e.artifactSource.id, service: displayed(e.service), source: sourceName(e.artifactSource), before: e.version, after: null, kind: 'removed' })
  }
  return changes
}

/** "sha256:0123456789ab" */
export function shortDigest(digest: string): string {
  const [algorithm, hex] = digest.split(':')
  return hex ? `${algorithm}:${hex.slice(0, 12)}` : digest.slice(0, 12)
}
