// A real stack for the browser tests, and what registries and teams do to it from outside.
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const lockstep = process.env.LOCKSTEP ?? 'lockstep'

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/** Asks until the answer is truthy. */
export async function until(what, question, limit = 60_000) {
  const end = Date.now() + limit
  for (;;) {
    const answer = await question()
    if (answer) return answer
    if (Date.now() > end) throw new Error(`waited ${limit / 1000} s for ${what}`)
    await pause(100)
  }
}

/** Runs the demo in a folder, so that there is something to see. */
export async function playDemo(dir) {
  await run(lockstep, ['demo', '--data', dir], { maxBuffer: 1 << 24 })
}

/** `lockstep dev` in a folder, with more configuration of its parts; the answer has its endpoints, and stop(). */
export async function start(dir, settings = {}) {
  await rm(join(dir, 'endpoints.json'), { force: true })
  const child = spawn(lockstep, ['dev', '--data', dir, ...Object.entries(settings).flatMap(([k, v]) => ['--set', `${k}=${v}`])], { stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  child.stdout.on('data', (d) => (said += d))
  child.stderr.on('data', (d) => (said += d))
  const ended = new Promise((resolve) => child.on('exit', resolve))
  await until('the stack', () => {
    if (child.exitCode !== null) throw new Error(`lockstep dev ended: ${said}`)
    return said.includes('ready;')
  })
  const endpoints = JSON.parse(await readFile(join(dir, 'endpoints.json'), 'utf8'))
  const stop = async () => {
    child.kill('SIGINT')
    await ended
  }
  /** Kills one part; the supervisor starts it again. */
  const crash = async (part) => process.kill(Number(await readFile(join(dir, 'run', `${part}.pid`), 'utf8')), 'SIGKILL')
  return { ...endpoints, dir, stop, crash }
}

export async function graphql(stack, query, variables = {}) {
  const response = await fetch(stack.graphql, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${stack.token}` },
    body: JSON.stringify({ query, variables }),
  })
  const { data, errors } = await response.json()
  if (errors) throw new Error(JSON.stringify(errors))
  return data
}

/** A rollout of a set of the demo's application that waits for its approval. */
export async function rollTo(stack, name) {
  const { application } = await graphql(stack, '{ application(name: "shop") { versionSets(first: 50) { nodes { id name } } } }')
  const set = application.versionSets.nodes.find((s) => s.name === name)
  const made = await graphql(stack, 'mutation($i: CreateRolloutInput!) { createRollout(input: $i) { rollout { id } errors { message } } }', {
    i: { versionSetId: set.id, reason: 'browser test' },
  })
  if (!made.createRollout.rollout) throw new Error(JSON.stringify(made.createRollout.errors))
  return made.createRollout.rollout.id
}

/** A mutation that has to be taken. */
export async function change(stack, field, type, input, answer = '') {
  const made = (await graphql(stack, `mutation($i: ${type}!) { ${field}(input: $i) { ${answer} errors { message } } }`, { i: input }))[field]
  assert.deepEqual(made.errors, [])
  return made
}

/** The pipeline of the demo, which waits at the first gate of staging for some seconds. */
export async function soakFor(stack, seconds) {
  const { application } = await graphql(stack, '{ application(name: "shop") { flowDefinition { definition } } }')
  const { definition } = application.flowDefinition
  definition.steps[0].gates[0].soak_duration = seconds
  await change(stack, 'createFlowDefinition', 'CreateFlowDefinitionInput', { application: 'shop', definition })
  await until('the environments', async () => {
    const answer = await graphql(stack, '{ application(name: "shop") { environments { readiness } } }')
    return answer.application.environments.every((e) => e.readiness === 'READY')
  })
}

export async function rolloutState(stack, id) {
  const { rollout } = await graphql(stack, 'query($id: ID!) { rollout(id: $id) { state openGates { gateId } } }', { id })
  return rollout
}

/** Has the engine run a program, as a team does from its terminal. */
export async function startWorkflow(stack, id, program) {
  const file = join(stack.dir, `${id}.star`)
  await writeFile(file, program)
  await run(lockstep, ['workflow', 'start', id, file, '--endpoints-file', join(stack.dir, 'endpoints.json')])
}

/** A repository with a manifest for each service, as a team would have it. */
export async function createRepository(stack, name, namespace, services) {
  const bare = join(stack.dir, 'git', `${name}.git`)
  const work = await mkdtemp(join(stack.dir, 'work-'))
  const git = (...args) => run('git', ['-c', 'user.name=Team', '-c', 'user.email=team@example.com', ...args], { cwd: work })
  await git('init', '-q', '-b', 'main')
  for (const service of services) {
    const path = join(work, namespace, `${service}.yaml`)
    await mkdir(dirname(path), { recursive: true })
    await writeFile(path, manifest(service, `${stack.oci}/${name}/${service}`))
  }
  await git('add', '.')
  await git('commit', '-q', '-m', 'what runs where')
  await run('git', ['clone', '-q', '--bare', work, bare])
  await run('git', ['-C', bare, 'config', 'http.receivepack', 'true'])
  await rm(work, { recursive: true })
  const url = new URL(stack.git)
  return `${url.protocol}//${url.host}/${name}.git`
}

/** The team moves a file of its repository, and pushes that. */
export async function moveFile(stack, name, from, to) {
  const bare = join(stack.dir, 'git', `${name}.git`)
  const work = await mkdtemp(join(stack.dir, 'work-'))
  await run('git', ['clone', '-q', bare, work])
  const git = (...args) => run('git', ['-c', 'user.name=Team', '-c', 'user.email=team@example.com', ...args], { cwd: work })
  await git('mv', from, to)
  await git('commit', '-q', '-m', 'move it to where the workflow reads it')
  await git('push', '-q', 'origin', 'main')
  await rm(work, { recursive: true })
}

const manifest = (name, image) => `apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata:
  name: ${name}
spec:
  replicas: 2
  selector: { matchLabels: { app: ${name} } }
  template:
    metadata: { labels: { app: ${name} } }
    spec:
      containers:
        - name: ${name}
          image: ${image}:unreleased
  strategy:
    canary:
      steps:
        - setWeight: 100
`

const sha256 = (bytes) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`

/** What \`docker push\` does, with an image that has no layers. */
export async function pushImage(stack, repository, tag) {
  const base = `http://${stack.oci}/v2/${repository}`
  const config = JSON.stringify({ os: 'linux', architecture: 'amd64', config: { Labels: { tag: `${repository}:${tag}` } }, rootfs: { type: 'layers', diff_ids: [] } })
  const upload = await fetch(`${base}/blobs/uploads/`, { method: 'POST' })
  const place = new URL(upload.headers.get('location') ?? '', base)
  place.searchParams.set('digest', sha256(config))
  const blob = await fetch(place, { method: 'PUT', body: config, headers: { 'Content-Type': 'application/octet-stream' } })
  const media = 'application/vnd.oci.image.manifest.v1+json'
  const body = JSON.stringify({
    schemaVersion: 2, mediaType: media, layers: [],
    config: { mediaType: 'application/vnd.oci.image.config.v1+json', digest: sha256(config), size: config.length },
  })
  const put = await fetch(`${base}/manifests/${tag}`, { method: 'PUT', body, headers: { 'Content-Type': media } })
  if (!put.ok) throw new Error(`push ${repository}:${tag}: blob ${blob.status}, manifest ${put.status} ${await put.text()}`)
}

export function exists(path) {
  return existsSync(path)
}
