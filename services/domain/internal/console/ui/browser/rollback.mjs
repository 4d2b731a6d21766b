// Tests of what people do when a rollout goes wrong, in a real browser against a real stack: wait, stop, abort, roll back, break glass.
// `make console-test` runs them; SHOTS=DIR keeps pictures.
import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { check, launch, open, shot, tabTo } from './page.mjs'
import { change, graphql, playDemo, pushImage, rollTo, soakFor, start, until } from './stack.mjs'

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

/** The page of one thing as it is on a phone and in the dark, with axe. */
async function looks(path, name, ready) {
  for (const look of [{ name: 'dark', dark: true }, { name: '390', width: 390, height: 844 }]) {
    const page = await open(browser, stack, look)
    await page.goto(path)
    await ready(page).waitFor()
    await check(page, `${name} ${look.name}`)
    await shot(page, `${name}-${look.name}`)
    await page.finish()
  }
}

test('a failed rollout says when it is rolled back automatically, until that is stopped; both rollouts of a rollback say so, and what is skipped', async () => {
  await change(stack, 'setRollbackPolicy', 'SetRollbackPolicyInput', { application: 'shop', onFailed: false, onDegraded: true, degradedAfterSeconds: 1800, inFull: false })
  const failed = await rollTo(stack, 'set-5')
  const page = await open(browser, stack)
  await page.goto(`/rollouts/${failed}`)
  await page.getByRole('heading', { name: 'Why it failed' }).waitFor({ timeout: 120_000 })
  const automatic = page.getByRole('region', { name: 'Automatic rollback' })
  await automatic.getByText(/^Rolls back automatically (at|on) .*\d\d:\d\d$/).waitFor()
  const bar = automatic.getByRole('progressbar', { name: 'Time until the automatic rollback' })
  assert.ok((await bar.evaluate((e) => e.value)) < 0.5, 'found a bar of half an hour that is over after seconds')
  await page.getByText('What is deployed stays as it is until it is rolled back automatically.').waitFor()
  await check(page, 'an automatic rollback that is due')
  await shot(page, 'rollback-due-light')
  await looks(`/rollouts/${failed}`, 'rollback-due', (p) => p.getByRole('progressbar'))

  const stop = automatic.getByRole('button', { name: 'Stop the automatic rollback' })
  await tabTo(page, stop)
  await page.keyboard.press('Enter')
  const dialog = page.getByRole('dialog')
  await dialog.waitFor()
  await page.keyboard.type('we look at it first')
  await shot(page, 'rollback-stop-light')
  await page.keyboard.press('Enter')
  await automatic.getByText(/stopped by owner: we look at it first/i).waitFor()
  assert.equal(await page.getByRole('progressbar').count(), 0)
  await page.getByText('What is deployed stays as it is. Roll back, retry').waitFor()
  await page.getByRole('region', { name: 'Why it ended' }).getByText(/degraded at gate 50/).waitFor()
  await page.getByLabel('Journal, newest first').getByText('automatic rollback stopped').waitFor()

  await page.getByRole('button', { name: 'Roll back', exact: true }).click()
  const sets = dialog.getByLabel('Version set')
  await until('the sets', async () => (await sets.locator('option').count()) > 0)
  const offered = await sets.locator('option').allTextContents()
  assert.ok(offered.some((o) => o.startsWith('set-3 ')) && !offered.some((o) => /^set-[5-9]\b/.test(o)), `found ${offered}`)
  const where = dialog.getByRole('group', { name: 'Environments to roll back' })
  const staging = where.getByLabel(/^staging/)
  assert.deepEqual([await staging.isChecked(), await where.getByLabel(/^production/).isEnabled()], [true, false])
  await where.getByText('skipped: set-3 is live there already').waitFor()
  const go = dialog.getByRole('button', { name: 'Roll back' })
  await staging.uncheck()
  await where.getByText('Choose at least one environment.').waitFor()
  assert.equal(await go.isDisabled(), true)
  await staging.check()
  await check(page, 'roll back, with environments')
  await shot(page, 'roll-back-environments-light')
  await go.click()
  await page.waitForURL((url) => !url.pathname.endsWith(failed))
  const back = page.url().split('/').at(-1)
  await page.getByRole('link', { name: `set-5 (${failed})` }).waitFor()
  const course = page.getByRole('list', { name: 'The course of this rollout' })
  await course.getByRole('listitem').filter({ hasText: 'production' }).getByText('set-3 is live there already').waitFor()
  assert.equal(await course.getByText('release').count(), 0, 'an approval before what is skipped')
  await page.locator('.page-head .chip').getByText('Completed').waitFor({ timeout: 120_000 })
  // The row of the journal is in the journal: "skip" was once the class of the link to the page's content, which is taken out of the flow.
  const [row, journal] = await Promise.all([page.locator('.entry').filter({ hasText: 'skipped a part' }).boundingBox(), page.getByLabel('Journal, newest first').boundingBox()])
  assert.ok(row.x >= journal.x && row.width > journal.width / 2, `found the row at ${JSON.stringify(row)}, the journal at ${JSON.stringify(journal)}`)
  await check(page, 'a rollback that skips an environment')
  await shot(page, 'rollback-skips-light')
  await looks(`/rollouts/${back}`, 'rollback-skips', (p) => p.getByText('Skipped').first())

  await page.getByRole('link', { name: `set-5 (${failed})` }).click()
  await page.getByText(`It has been rolled back to set-3 (${back}).`).waitFor()
  assert.equal(await page.getByText('What is deployed stays as it is').count(), 0)
  await check(page, 'a rollout that was rolled back')
  await shot(page, 'rolled-back-light')
  await page.finish()
})

test('D58: automation that the rollback holds says so on the application, and is released for a reason, by keyboard', async () => {
  const page = await open(browser, stack)
  await page.goto('/applications/shop')
  const held = page.locator('.banner').filter({ hasText: 'Automation begins nothing in staging' })
  await held.getByText(/rolled back there/).waitFor()
  await held.getByRole('link', { name: /^rollout_\d+$/ }).waitFor()
  await check(page, 'an application whose automation is held')
  await shot(page, 'automation-held-light')
  await tabTo(page, held.getByRole('button', { name: 'Release staging' }))
  await page.keyboard.press('Enter')
  await page.getByRole('dialog').waitFor()
  await page.keyboard.type('mended in the next set')
  await page.keyboard.press('Enter')
  await held.waitFor({ state: 'detached' })
  await page.goto('/activity')
  await page.getByText('mended in the next set').first().waitFor()
  await looks('/applications/shop', 'automation-released', (p) => p.getByRole('heading', { name: 'Triggers' }))
  await page.finish()
})

test('break-glass: for those who may, never without a reason, and seen by everyone afterwards', async () => {
  const id = await rollTo(stack, 'set-1')
  const page = await open(browser, stack)
  await page.goto(`/rollouts/${id}`)
  const glass = page.getByRole('button', { name: 'Break glass…' })
  await glass.waitFor({ timeout: 120_000 })
  await shot(page, 'break-glass-offered-light')

  const { member } = await change(stack, 'createMember', 'CreateMemberInput', { name: 'ada', kind: 'USER', role: 'APPROVER' }, 'member { id }')
  const { token } = await change(stack, 'createToken', 'CreateTokenInput', { memberId: member.id, name: 'browser' }, 'token')
  const other = await open(browser, { ...stack, token })
  await other.goto(`/rollouts/${id}`)
  await other.getByRole('button', { name: /^Approve release/ }).waitFor()
  assert.equal(await other.getByRole('button', { name: 'Break glass…' }).count(), 0)

  await tabTo(page, glass)
  await page.keyboard.press('Enter')
  const dialog = page.getByRole('dialog')
  const go = dialog.getByRole('button', { name: 'Break glass' })
  assert.equal(await go.isDisabled(), true)
  await page.keyboard.type('   ')
  assert.equal(await go.isDisabled(), true)
  await page.keyboard.type('incident 99')
  await check(page, 'break glass')
  await shot(page, 'break-glass-light')
  await page.keyboard.press('Enter')
  await dialog.waitFor({ state: 'detached' })
  const banner = page.getByRole('region', { name: 'Break-glass' })
  await banner.getByText('incident 99').waitFor()
  await banner.getByText('owner').waitFor()
  await page.getByLabel('Journal, newest first').getByText('gate overridden by break-glass').waitFor()
  await page.locator('.page-head .chip').getByText('Completed').waitFor({ timeout: 120_000 })
  await other.getByRole('region', { name: 'Break-glass' }).getByText('incident 99').waitFor()
  await page.locator('.stop').getByText('Overridden by break-glass').waitFor()
  await check(page, 'a rollout of broken glass')
  await shot(page, 'broken-glass-light')
  await looks(`/rollouts/${id}`, 'broken-glass', (p) => p.getByRole('region', { name: 'Break-glass' }))
  await other.finish()

  // The same from the dialog that rolls back, for a person who is alone with a bad production.
  // What was live before set-1 is newer than set-1: it is not a rollback, and is not offered; the button says why.
  const back = page.getByRole('button', { name: 'Roll back', exact: true })
  await back.waitFor()
  assert.equal(await back.getAttribute('aria-disabled'), 'true')
  const why = await back.getAttribute('aria-describedby')
  assert.ok((await page.locator(`[id="${why}"]`).textContent()).trim() !== '', 'the button does not say why')
  await page.goto('/rollouts/rollout_3')
  await page.getByRole('button', { name: 'Roll back', exact: true }).click()
  await dialog.getByRole('group', { name: 'Environments to roll back' }).getByText('set-1 → set-3').first().waitFor()
  await dialog.getByLabel('Break glass: override the approvals of this rollback').check()
  assert.equal(await dialog.getByRole('button', { name: 'Break glass and roll back' }).isDisabled(), true)
  await check(page, 'roll back with break-glass')
  await shot(page, 'roll-back-glass-light')
  await page.finish()
})

test('a soak counts down; what is aborted says so wherever it is shown, and offers what makes sense then', async (t) => {
  await soakFor(stack, 600)
  const id = await rollTo(stack, 'set-3')
  // The application has one place for a rollout.
  t.after(() => change(stack, 'cancelRollout', 'CancelRolloutInput', { rolloutId: id }))
  const page = await open(browser, stack)
  await page.goto(`/rollouts/${id}`)
  await page.getByText('Soaking at 25 % in staging').waitFor({ timeout: 120_000 })
  await page.getByRole('progressbar', { name: 'Soaking at 25 % in staging' }).waitFor()
  assert.deepEqual(await page.locator('.lane').first().getByText('2 of 2 at gate').count(), 1)
  await check(page, 'a soak')
  await shot(page, 'soak-light')
  await looks(`/rollouts/${id}`, 'soak', (p) => p.getByRole('progressbar'))
  await page.getByRole('button', { name: 'Abort', exact: true }).click()
  await page.getByRole('dialog').getByLabel('Reason').fill('errors at the checkout')
  await page.getByRole('dialog').getByRole('button', { name: 'Abort' }).click()
  const chip = page.locator('.page-head .chip')
  await chip.getByText('Aborted', { exact: true }).waitFor({ timeout: 120_000 })
  await page.getByText('Aborted: retry it, roll it back or cancel it').waitFor()
  const lane = page.locator('.lane').first()
  await lane.getByText('set-3 was taken back to set-1').waitFor()
  assert.equal(await lane.locator('.mark').getByText('Taken back').count(), 2)
  assert.deepEqual([await lane.locator('.mark').getByText('At gate').count(), await chip.getByText('Paused').count()], [0, 0])
  for (const [verb, disabled] of [['Resume', 'true'], ['Abort', 'true'], ['Retry', null], ['Roll back', null], ['Cancel rollout', null]]) {
    assert.equal(await page.getByRole('button', { name: verb, exact: true }).getAttribute('aria-disabled'), disabled, verb)
  }
  await check(page, 'an aborted rollout')
  await shot(page, 'aborted-light')
  await looks(`/rollouts/${id}`, 'aborted', (p) => p.locator('.mark').getByText('Taken back').first())
  for (const path of ['/', '/rollouts', '/applications']) {
    await page.goto(path)
    await page.locator('main .chip').getByText('Aborted', { exact: true }).first().waitFor()
    await check(page, `aborted on ${path}`)
    await shot(page, `aborted-on-${path.slice(1) || 'live-versions'}-light`)
  }
  await page.finish()
})

test('a version whose digest its registry does not have says so, with what it means, by keyboard', async () => {
  for (const look of [{ name: 'light' }, { name: '390', width: 390, height: 844 }]) {
    const page = await open(browser, stack, look)
    await page.route('**/graphql', async (route) => {
      if (route.request().headers().accept === 'text/event-stream') return route.fallback()
      const response = await route.fetch()
      await route.fulfill({ response, body: (await response.text()).replaceAll(/"digestSeen":(true|null)/g, '"digestSeen":false') })
    })
    for (const path of ['/applications/shop', '/sources', '/applications/shop/sets']) {
      await page.goto(path)
      const note = page.getByText('Digest not seen at the registry').first()
      await note.waitFor()
      await note.focus()
      const tip = page.getByRole('tooltip').filter({ visible: true })
      await tip.getByText(/does not have this digest/).waitFor()
      // Nothing cuts it off, neither the table that it is in nor the window.
      const cut = await tip.evaluate((e) => {
        const { left, right, top, bottom } = e.getBoundingClientRect()
        return [[left + 4, top + 4], [right - 4, bottom - 4]].some(([x, y]) => !e.contains(document.elementFromPoint(x, y)))
      })
      assert.equal(cut, false, `the tooltip on ${path} is cut off`)
      await check(page, `unseen on ${path} ${look.name}`)
      await shot(page, `unseen${path.replaceAll('/', '-')}-${look.name}`)
    }
    await page.unrouteAll({ behavior: 'ignoreErrors' })
    await page.finish()
  }
})

test('D61: a fleet is folded by its waves; a wave is paused and resumed for a reason, and shows its targets', async (t) => {
  const { agents, environment } = await graphql(stack, '{ agents(first: 10) { nodes { id name } } environment(name: "staging") { id } }')
  const { agent } = await change(stack, 'registerAgent', 'RegisterAgentInput', { name: 'store-2' }, 'agent { id }')
  for (const [agentId, ring] of [[agents.nodes[0].id, '1'], [agent.id, '2']]) {
    await change(stack, 'setAgentLabels', 'SetAgentLabelsInput', { agentId, set: { kind: 'store', ring } })
  }
  const fleet = { selector: { kind: 'store' }, order: { label: 'ring' }, waves: [{ targets: 1 }, { targets: 1 }], interval_seconds: 3600 }
  await change(stack, 'updateEnvironment', 'UpdateEnvironmentInput', { environmentId: environment.id, fleet })
  t.after(() => change(stack, 'updateEnvironment', 'UpdateEnvironmentInput', { environmentId: environment.id, fleet: {} }))
  await soakFor(stack, 1) // once the environment is ready again
  for (const service of ['api', 'web']) await pushImage(stack, `shop/${service}`, '9.0.0') // none that was rolled out before: that is a rollback
  let newest
  await until('the new version set', async () => {
    newest = (await graphql(stack, '{ application(name: "shop") { versionSets(first: 1) { nodes { name entries { version { name } } } } } }')).application.versionSets.nodes[0]
    return newest.entries.every((e) => e.version.name === '9.0.0')
  })
  const id = await rollTo(stack, newest.name)
  t.after(() => change(stack, 'cancelRollout', 'CancelRolloutInput', { rolloutId: id }))

  const page = await open(browser, stack)
  await page.goto(`/rollouts/${id}`)
  const card = page.getByRole('region', { name: 'Targets in staging' })
  await card.getByRole('heading', { name: 'staging: 1 of 2 targets healthy' }).waitFor({ timeout: 120_000 })
  await card.getByText('A wave waits 1h after the end of the one before.').waitFor()
  await card.getByRole('progressbar', { name: 'Targets in staging: 1 healthy, 0 failed, of 2' }).waitFor()
  const [first, second] = [card.locator('[data-wave="1"]'), card.locator('[data-wave="2"]')]
  await first.locator('.chip').getByText('Healthy').waitFor()
  assert.equal(await card.getByText(agents.nodes[0].name, { exact: true }).count(), 0, 'the targets are not folded')
  await tabTo(page, first.getByRole('button', { name: 'Show 1 target' }))
  await page.keyboard.press('Enter')
  await first.getByText(agents.nodes[0].name, { exact: true }).waitFor()
  assert.equal(await first.getByRole('button', { name: 'Hide 1 target' }).getAttribute('aria-expanded'), 'true')
  await check(page, 'a fleet')
  await shot(page, 'fleet-light')

  await second.getByRole('button', { name: 'Pause wave 2 of staging' }).click()
  await page.getByRole('dialog').getByLabel('Reason').fill('the stores close at six')
  await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click()
  await second.locator('.chip').getByText('Paused').waitFor()
  await check(page, 'a fleet with a paused wave')
  await looks(`/rollouts/${id}`, 'fleet-paused', (p) => p.locator('[data-wave="2"] .chip').getByText('Paused'))
  await second.getByRole('button', { name: 'Resume wave 2 of staging' }).click()
  await page.getByRole('dialog').getByLabel('Reason').fill('they are closed')
  await page.getByRole('dialog').getByRole('button', { name: 'Resume' }).click()
  await second.locator('.chip').getByText('Paused').waitFor({ state: 'detached' })
  await page.finish()
})
