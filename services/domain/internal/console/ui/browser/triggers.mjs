// Tests of what begins rollouts and of what they leave out, in a real browser against a real stack: a trigger that edits files, parts of a
// pipeline that are skipped, and what is pending in the queue. `make console-test` runs them; SHOTS=DIR keeps pictures.
import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { check, launch, open, shot, tabTo } from './page.mjs'
import { change, createRepository, graphql, playDemo, rollTo, soakFor, start, until } from './stack.mjs'

let browser
let dir
let stack

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'console-'))
  await chmod(dir, 0o755) // PostgreSQL runs as an account of its own
  browser = await launch()
  await playDemo(join(dir, 'story'))
  stack = await start(join(dir, 'story'))
})

after(async () => {
  await browser?.close()
  await stack?.stop()
  await rm(dir, { recursive: true, force: true, maxRetries: 5 })
})

test('R4-28: a trigger that edits files is checked while it is written, says what it edits, and leads to its commit', async () => {
  const repository = await createRepository(stack, 'edited', 'shop', ['api'])
  const page = await open(browser, stack)
  await page.goto('/applications/shop')
  await page.getByRole('button', { name: 'Add a trigger' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Name', { exact: true }).fill('builds')
  await dialog.getByLabel('Kind').selectOption('EVENT')
  const field = (path) => dialog.locator(`[data-field="${path}"]`)
  await dialog.getByText('Files to edit first').waitFor({ state: 'attached' })
  await dialog.locator('details.optional').evaluateAll((all) => all.forEach((one) => (one.open = true)))
  await dialog.getByRole('group', { name: 'Types' }).getByRole('button', { name: 'Add' }).click()
  await field('types/0').fill('build.passed')
  const edit = dialog.getByRole('group', { name: 'Files to edit first' })
  await field('edit/repository').fill(`${repository}?x`)
  await field('edit/branch').fill('main')
  await edit.getByRole('group', { name: 'Values' }).getByRole('button', { name: 'Add' }).click()
  await field('edit/files/0/path').fill('shop/api.yaml')
  await field('edit/files/0/from').fill('build.replicas')
  const save = dialog.getByRole('button', { name: 'Save' })
  await save.click()
  await edit.getByText('This does not have the form that is expected here.').waitFor()
  await edit.getByText('Exactly one of these is needed: YAML; JSON; HCL; Regular expression.').waitFor()
  await field('edit/repository').fill(repository)
  await field('edit/files/0/regex').fill('replicas: \\d+')
  await save.click()
  await edit.getByText(/expected a regular expression \(RE2\) with one group/).waitFor()
  await shot(page, 'trigger-edit-form-light')
  await check(page, 'the form of a trigger that edits files')
  await field('edit/files/0/regex').fill('')
  await field('edit/files/0/yaml').fill('spec.replicas')
  await save.click()
  await dialog.waitFor({ state: 'detached' })
  const mine = page.getByRole('row').filter({ hasText: 'builds' })
  await mine.getByText('shop/api.yaml').waitFor()
  assert.match(await mine.locator('[data-edits]').innerText(), /branch main, by commit:[\s\S]*YAML spec\.replicas becomes build\.replicas/)

  const sent = await graphql(stack, 'mutation($i: SendEventInput!) { sendEvent(input: $i) { triggers errors { message } } }', {
    i: { id: '1', source: '/ci', type: 'build.passed', data: { build: { replicas: '7' } } },
  })
  assert.deepEqual(sent.sendEvent, { triggers: 1, errors: [] })
  await page.reload()
  const link = mine.locator('[data-edit="committed"]').getByRole('link', { name: /^commit [0-9a-f]{10}$/ })
  await link.waitFor({ timeout: 60_000 })
  assert.match(await link.getAttribute('href'), /\/edited\/commit\/[0-9a-f]{40}$/)
  await shot(page, 'trigger-edited-light')
  await check(page, 'a trigger that has edited files')
  await page.finish()
})

test('R4-26: a pause and a job that a rollout leaves out say so, with the reason, where they stand', async () => {
  const page = await open(browser, stack)
  // What is new decides about it when the rollout begins, which takes commits: the answer has it in their place.
  await page.route('**/graphql', async (route) => {
    if (route.request().headers().accept?.includes('event-stream')) return route.continue()
    const response = await route.fetch()
    const body = await response.json()
    const rollout = body.data?.rollout
    if (rollout?.flowDefinition?.definition && rollout.journal) {
      const skip_on = { paths: ['docs/**'] }
      const [first, ...others] = rollout.flowDefinition.definition.steps
      first.before = [{ name: 'migrate', skip_on }]
      rollout.flowDefinition.definition.steps = [first, { type: 'pause', name: 'soak', duration: 60, skip_on }, { type: 'pause', duration: 5 }, ...others]
      const row = rollout.journal.nodes[0]
      const left = (reason) => ({ ...row, subject: rollout.id, event: 'skip', reason, gateId: null })
      rollout.journal.nodes.push(left('soak is skipped: all changed files match docs/**'), left(`the job migrate in ${first.environment} is skipped: all changed files match docs/**`))
    }
    await route.fulfill({ response, json: body })
  })
  await page.goto('/rollouts/rollout_2')
  const course = page.getByRole('list', { name: 'The course of this rollout' })
  const stop = (text) => course.getByRole('listitem').filter({ hasText: text })
  await stop('soak').getByText('Skipped').waitFor()
  assert.match(await stop('soak').last().textContent(), /Pause of .* soak: all changed files match docs\/\*\*/)
  await stop('the job migrate in').getByText('Skipped').waitFor()
  assert.equal(await stop('Pause of 5').getByText('Skipped').count(), 0)
  await shot(page, 'rollout-skipped-parts-light')
  await check(page, 'a rollout that leaves parts of its pipeline out')
  await page.unrouteAll({ behavior: 'ignoreErrors' })
  await page.finish()
})

test('R4-03, R4-05: what is pending says why, and is cancelled for a reason, by keyboard', async (t) => {
  await change(stack, 'setRolloutPolicy', 'SetRolloutPolicyInput', { application: 'shop', onFailure: 'STOP', onNewer: 'QUEUE' })
  await soakFor(stack, 600)
  await until('the rollout of the event to end', async () => !(await graphql(stack, '{ application(name: "shop") { activeRollout { id } } }')).application.activeRollout)
  const { application } = await graphql(stack, '{ application(name: "shop") { versionSets(first: 1) { nodes { id name } } } }')
  const [newer] = application.versionSets.nodes
  const active = await rollTo(stack, 'set-1') // it holds, and soaks; set-3 is live where the rollout of the event was rolled back before
  t.after(() => change(stack, 'cancelRollout', 'CancelRolloutInput', { rolloutId: active }))
  const made = await change(stack, 'createRollout', 'CreateRolloutInput', { versionSetId: newer.id, reason: 'the newest' }, 'queued { id }')
  assert.ok(made.queued, 'it has to wait for the one that is active')

  const page = await open(browser, stack)
  await page.goto('/applications/shop')
  const line = page.locator('.line').filter({ hasText: 'asked for' })
  await line.getByText('Pending').waitFor()
  assert.match(await line.innerText(), new RegExp(`${newer.name}.*by owner\\..*${active}.*the newest`, 's'))
  await check(page, 'an application with a pending rollout')
  await shot(page, 'queue-pending-light')
  await tabTo(page, page.getByRole('button', { name: `Cancel the pending rollout of ${newer.name}` }))
  await page.keyboard.press('Enter')
  const dialog = page.getByRole('dialog')
  await dialog.waitFor()
  await page.keyboard.type('not today')
  await page.keyboard.press('Enter')
  const gone = page.locator('.line').filter({ hasText: 'which waited in the queue' })
  await gone.getByText(/cancelled by owner: not today/i).waitFor()
  assert.equal(await line.count(), 0)
  await check(page, 'an application whose pending rollout was cancelled')
  await shot(page, 'queue-cancelled-light')
  await page.finish()
})
