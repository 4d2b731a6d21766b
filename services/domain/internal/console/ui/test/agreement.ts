/// <reference types="node" />
// Values for the schemas of drivers, made up from a seed: the same on every machine. What the renderer says of each is written into
// agreement.json, and a Go test holds the server's validator against it.
import { readFileSync } from 'node:fs'
import { isRecord, prune, resolve, typeOf, validate, type Schema } from '../src/form/schema'
import { boats, functions, machines, ports } from './drivers'

const root = '../../../../../pkg/'
const shipped = (path: string) => JSON.parse(readFileSync(root + path, 'utf8')) as Schema

/** The made-up drivers, and everything with a form that the product ships. */
export const schemas: Record<string, Schema> = {
  boats, functions, machines, ports,
  'argo-rollouts environment': shipped('driver/bundles/argo-rollouts/v1/environment.json'),
  'argo-rollouts application environment': shipped('driver/bundles/argo-rollouts/v1/application_environment.json'),
  'kubernetes environment': shipped('driver/bundles/kubernetes/v1/environment.json'),
  'kubernetes application environment': shipped('driver/bundles/kubernetes/v1/application_environment.json'),
  'argo-workflows environment': shipped('driver/bundles/argo-workflows/v1/environment.json'),
  'argo-workflows application environment': shipped('driver/bundles/argo-workflows/v1/application_environment.json'),
  'flux environment': shipped('driver/bundles/flux/v1/environment.json'),
  'flux application environment': shipped('driver/bundles/flux/v1/application_environment.json'),
  'git driver environment': shipped('driver/bundles/git/v1/environment.json'),
  'git driver application environment': shipped('driver/bundles/git/v1/application_environment.json'),
  'oci-image': shipped('source/kinds/oci-image@1.json'),
  git: shipped('source/kinds/git@1.json'),
}

export interface Case {
  value: unknown
  valid: boolean
}

/** A small generator of pseudo-random numbers (mulberry32). */
function random(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

const texts = ['', 'a', 'shop', 'A b', 'linux/arm64', 'https://git.example.com/shop.git', '>=1.0.0', 'x'.repeat(300)]
const references = [
  'env:TOKEN', 'env:TOKEN=hunter2', 'env:', 'env:a b', 'file:/run/secrets/key', 'file:key', 'k8s:shop/login#password', 'k8s:Shop/login#password', 'k8s:shop/login', 'vault:secret/data/shop#key',
  'vault:shop#key', 'vault:secret/../shop#key', 'hunter2', '', 'vault', 'aws:secret/data/shop#key', 'vault:secret/data/shop#ключ', 'vault:secret/data/shop#a\u00a0b', 'env:A\nB',
]
const strangers: unknown[] = [null, 'text', 3, 1.5, true, [], {}]

function make(whole: Schema, schema: Schema, next: () => number, depth = 0): unknown {
  const pick = <T>(all: T[]): T => all[Math.floor(next() * all.length)] as T
  const s = resolve(whole, schema)
  if (typeof s === 'boolean' || next() < 0.04) return pick(strangers)
  if (s.const !== undefined && next() < 0.8) return s.const
  if (s.enum && next() < 0.9) return pick(s.enum)
  switch (typeOf(s)) {
    case 'boolean':
      return next() < 0.5
    case 'integer':
    case 'number':
      return pick([s.minimum ?? 0, (s.minimum ?? 0) - 1, s.maximum ?? 7, (s.maximum ?? 7) + 1, 42, 1.5])
    case 'string':
      return pick(s.gitlabUi?.widget === 'secret_reference' ? references : texts)
    case 'array':
      return Array.from({ length: Math.floor(next() * 3) }, () => make(whole, s.items ?? true, next, depth + 1))
    case 'object': {
      const names = new Set([...Object.keys(s.properties ?? {}), ...(s.allOf ?? []).flatMap((a) => (isRecord(a) ? Object.keys(a.properties ?? {}) : []))])
      const value: Record<string, unknown> = {}
      for (const name of names) if (next() < (s.required?.includes(name) ? 0.93 : 0.4)) value[name] = make(whole, s.properties?.[name] ?? true, next, depth + 1)
      if (next() < 0.05) value.stranger = 1
      return value
    }
    default:
      return pick(strangers)
  }
}

export const casesOf = 120

/** Values as they come, and every other one as the form would send it. */
export function cases(name: string): Case[] {
  const schema = schemas[name] as Schema
  const next = random([...name].reduce((sum, c) => sum * 31 + c.charCodeAt(0), 7))
  return Array.from({ length: casesOf }, (_, i) => {
    const made = make(schema, schema, next)
    const value = JSON.parse(JSON.stringify(i % 2 === 0 ? made : prune(schema, schema, made)))
    return { value, valid: validate(schema, schema, value).length === 0 }
  })
}
