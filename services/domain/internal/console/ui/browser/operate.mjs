// Tests of what operators do beside rollouts, in a real browser against a real stack: signing in at an identity provider, members
// and tokens, sources, workflows, pipelines. `make console-test` runs them; SHOTS=DIR keeps pictures.
import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { identityProvider } from './idp.mjs'
import { check, launch, open, shot, tabTo } from './page.mjs'
import { createRepository, graphql, moveFile, start, startWorkflow, playDemo, until } from './stack.mjs'

let browser
let dir
let idp
let stack

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'console-'))
  await chmod(dir, 0o755) // PostgreSQL runs as an account of its own
  browser = await launch()
  idp = await identityProvider({ 'olga@example.com': ['platform'], 'vera@example.com': ['readers'], 'nobody@example.com': [] })
  const story = join(dir, 'story')
  await playDemo(story)
  const known = await start(story)
  await known.stop() // its address is kept, and only now known
  stack = await start(story, {
    'domain.public_url': known.console.replace(/\/$/, ''), 'domain.oidc.issuer': idp.issuer, 'domain.oidc.label': 'Example ID',
    'domain.oidc.client_id': idp.client.id, 'domain.oidc.client_secret': idp.client.secret, 'domain.oidc.roles': 'platform=owner,readers=viewer',
  })
})

after(async () => {
  await browser?.close()
  await stack?.stop()
  await idp?.stop()
  await rm(dir, { recursive: true, force: true, maxRetries: 5 })
})

test('signing in at an identity provider, by keyboard, to the requested page; a person without access gets a page that says so', async () => {
  const page = await open(browser, stack, { signedIn: false })
  await page.goto('/rollouts/rollout_2')
  const way = page.getByRole('link', { name: 'Sign in with Example ID' })
  await way.waitFor()
  await check(page, 'sign-in with an identity provider')
  await shot(page, 'sign-in-provider-light')
  await way.focus()
  await page.keyboard.press('Enter')
  await page.getByRole('link', { name: 'nobody@example.com' }).click()
  await page.getByRole('alert').getByText('have no access here').waitFor()
  await shot(page, 'sign-in-no-access-light')
  await check(page, 'sign-in without access')
  await page.goto('/rollouts/rollout_2')
  await way.click()
  await page.getByRole('link', { name: 'olga@example.com' }).click()
  await page.getByRole('heading', { name: /^shop: set-/ }).waitFor()
  assert.ok(page.url().endsWith('/rollouts/rollout_2'))
  const cookies = await page.context().cookies()
  assert.deepEqual(cookies.map((c) => [c.httpOnly, c.sameSite]), [[true, 'Strict']])
  await page.getByRole('button', { name: 'Sign out' }).click()
  await way.waitFor()
  await page.getByRole('button', { name: 'Sign in with a token' }).click()
  await page.getByLabel('Token').fill(stack.token)
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: /^shop: set-/ }).waitFor()
  await page.finish()
})

test('a policy set from a template: what is wrong is shown where it is, what fits is offered, it is saved, changed and compared', async () => {
  const page = await open(browser, stack)
  await page.goto('/policies')
  await page.getByRole('heading', { name: 'No policies yet' }).waitFor()
  await page.getByRole('link', { name: 'New policy set' }).click()
  const editor = page.getByRole('textbox', { name: 'Policies, in Cedar' })
  await page.getByLabel('Begin with a template').selectOption('no-friday-evenings')
  await page.getByText('Nothing is wrong with it.').waitFor()
  // What the schema has at this place is offered, and taken by keyboard.
  await editor.focus()
  await page.keyboard.press('Control+End')
  await page.keyboard.type('\n@id("small")\nforbid (principal, action == Action::"environment.enter", resource)\nwhen { context.weig')
  await page.getByRole('option', { name: /^weight/ }).waitFor()
  await shot(page, 'policy-completion-light')
  // Until the list has been there for 75 ms, Enter is for the text (interactionDelay of CodeMirror).
  const shown = Date.now()
  await until('the list takes keys', () => Date.now() - shown > 75)
  await page.keyboard.press('Enter')
  assert.match(await editor.textContent(), /context\.weight/)
  await page.keyboard.type(' == "much" };')
  assert.match(await editor.textContent(), /context\.weight == "much" };$/)
  const problem = page.getByRole('list', { name: 'What is wrong' }).getByRole('listitem').first()
  await problem.filter({ hasText: /Line \d+.*much|Line \d+.*String/ }).waitFor()
  assert.ok(await page.getByRole('button', { name: 'Save' }).isDisabled())
  await shot(page, 'policy-findings-light')
  await check(page, 'a policy with findings')
  for (let i = 0; i < '"much" };'.length; i++) await page.keyboard.press('Backspace')
  assert.match(await editor.textContent(), /context\.weight == $/)
  await page.keyboard.type('100 };')
  await page.getByText('Nothing is wrong with it.').waitFor()
  await page.getByRole('button', { name: 'What would it have decided?' }).click()
  await page.getByRole('button', { name: 'Evaluate' }).click()
  await page.getByText(/of \d+ decisions would have been different/).waitFor()
  await page.getByRole('button', { name: 'Close' }).click()
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByLabel('Name').fill('weekends')
  await page.getByLabel(/^Reason/).fill('after the outage')
  await check(page, 'saving a policy set')
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
  await page.getByRole('heading', { name: 'weekends' }).waitFor()
  await page.getByText('Dry run').first().waitFor()
  await page.getByRole('button', { name: 'Change the state' }).click()
  await page.getByLabel('State').selectOption('ENFORCE')
  await page.getByLabel(/^Reason/).fill('it did what it should')
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
  await page.getByText('Enforced').first().waitFor()
  await page.getByRole('button', { name: 'What changed' }).last().click()
  await page.getByText('added: ').first().waitFor({ state: 'attached' })
  await shot(page, 'policy-light')
  await check(page, 'a policy set')
  const { policySets } = await graphql(stack, '{ policySets { name version mode reason } }')
  assert.deepEqual(policySets, [{ name: 'weekends', version: 2, mode: 'ENFORCE', reason: 'it did what it should' }])
  // Nothing else of these tests is about policies.
  await graphql(stack, 'mutation($input: PutPolicySetInput!) { putPolicySet(input: $input) { errors { message } } }', { input: { name: 'weekends', mode: 'OFF', reason: 'the test is over' } })
  await page.finish()
})

test('a channel for notifications is added, changed and removed', async () => {
  const page = await open(browser, stack)
  await page.goto('/notifications')
  await page.getByRole('button', { name: 'Add a channel' }).click()
  await page.getByLabel('Name').fill('oncall')
  await page.getByLabel('Kind').selectOption('WEBHOOK')
  await page.getByLabel(/URL/i).fill('https://hooks.example.com/lockstep')
  await check(page, 'a new channel')
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
  await page.getByRole('row', { name: /oncall/ }).waitFor()
  await page.getByRole('button', { name: 'Change oncall' }).click()
  await page.getByLabel('Messages a minute, at most').fill('7')
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
  await page.getByRole('row', { name: /oncall/ }).getByRole('cell', { name: '7', exact: true }).waitFor()
  // What it says: previewed, refused with where, saved, and kept by a change of the rest.
  await page.getByRole('button', { name: 'Texts of oncall' }).click()
  await page.getByLabel('Event').selectOption('rollout_failed')
  await page.getByRole('textbox', { name: /^Title/ }).fill('{[ .application | upper ]} is broken')
  await page.getByRole('textbox', { name: /^Text/ }).fill('{[ index .lines 0 ]}\n<b>Call {[ .principal ]}</b>')
  await page.getByRole('button', { name: 'Preview' }).click()
  const preview = page.getByRole('region', { name: 'Preview' })
  await preview.getByRole('heading', { name: 'SHOP is broken' }).waitFor()
  await preview.getByText('<b>Call Ann</b>', { exact: true }).waitFor()
  await check(page, 'a preview of a message')
  await shot(page, 'message-preview-light')
  await page.getByRole('textbox', { name: /^Text/ }).fill('{[ .nothing ]}')
  await page.getByRole('button', { name: 'Preview' }).click()
  await preview.getByText(/^The default would be sent: the text of rollout_failed/).waitFor()
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
  await page.getByText(/cannot be filled in/).first().waitFor()
  await page.getByRole('textbox', { name: /^Text/ }).fill('')
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  await page.getByRole('button', { name: 'Change oncall' }).click()
  await page.getByLabel('Messages a minute, at most').fill('8')
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
  await page.getByRole('row', { name: /oncall/ }).getByRole('cell', { name: '8', exact: true }).waitFor()
  const { notificationChannels } = await graphql(stack, '{ notificationChannels { config } }')
  assert.deepEqual(notificationChannels[0].config.templates, { rollout_failed: { title: '{[ .application | upper ]} is broken' } })
  await page.getByRole('button', { name: 'Remove oncall' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click()
  await page.getByText('No channels yet').waitFor()
  await page.finish()
})

test('a feed is made and revoked, and badges are shown and ended', async () => {
  const page = await open(browser, stack)
  await page.goto('/notifications')
  await page.getByRole('button', { name: 'Make a feed' }).click()
  await page.getByLabel('Name').fill('office')
  await check(page, 'a new feed')
  await page.getByRole('dialog').getByRole('button', { name: 'Make' }).click()
  const address = await page.getByRole('group', { name: /office/ }).locator('code').innerText()
  assert.equal((await fetch(new URL(new URL(address).pathname, stack.console))).status, 200)
  await page.getByRole('button', { name: 'I have kept it' }).click()
  await page.getByRole('button', { name: 'Show badges' }).click()
  await page.getByLabel('Application').fill('nothing-of-the-kind')
  await page.getByRole('dialog').getByRole('button', { name: 'Show' }).click()
  await page.getByRole('dialog').getByText(/nothing-of-the-kind/).first().waitFor()
  await page.getByLabel('Application').fill('shop')
  await page.getByRole('dialog').getByRole('button', { name: 'Show' }).click()
  await page.getByRole('combobox', { name: 'Environment of the badge of shop' }).selectOption('production')
  await page.getByText(/!\[shop in production\]\(http.*\/shop\/production\.svg\)/).waitFor()
  await check(page, 'feeds and badges')
  await shot(page, 'feeds-light')
  await page.getByRole('button', { name: 'End the badges of shop' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'End' }).click()
  await page.getByText('No badges.').waitFor()
  await page.getByRole('button', { name: 'Revoke office' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
  await page.getByText('No feeds.').waitFor()
  assert.equal((await fetch(new URL(new URL(address).pathname, stack.console))).status, 404)
  await page.finish()
})

const routes = ['/sources', '/sources?application=shop', '/sources/new', '/sources/artifactsource_1', '/sources/artifactsource_999', '/workflows', '/workflows?state=failed', '/workflows/nothing', '/functions', '/functions?text=git', '/schedules', '/schedules/nothing', '/new-schedule', '/edit-schedule/nothing', '/forges', '/forges/publishing', '/notifications', '/my-notifications', '/policies', '/policies/nothing', '/new-policy-set', '/find', '/find?q=log4j-core@2.14.1', '/versions/version_1', '/versions/version_999',
  '/agents', '/access', '/access?show=groups', '/access?show=grants', '/access?show=tokens', '/changes', '/changes?show=all', '/activity', '/activity?who=nobody-known', '/activity?action=createApplication', '/activity?action=approve&application=shop&since=2026-11-01']
for (const look of [{ name: 'light' }, { name: 'dark', dark: true }, { name: '320', width: 320, height: 700 }, { name: 'forced', forced: true }]) {
  test(`every route for operators, ${look.name}`, async () => {
    const page = await open(browser, stack, look)
    for (const route of routes) {
      await page.goto(route)
      await page.locator('main h1').waitFor()
      // Parts of a page load by themselves, so there may be several.
      await until('everything on the page', async () => (await page.locator('main .loading').count()) === 0)
      await check(page, `${route} ${look.name}`, { axeToo: look.name === 'light' || look.name === 'dark' })
      await shot(page, `${route.replaceAll(/[/?=]/g, '-').replace(/^-/, '')}-${look.name}`)
    }
    await page.getByRole('link', { name: 'Workflows' }).click()
    await page.getByRole('link', { name: 'Deploy' }).first().click()
    for (const show of ['log', 'history']) {
      if (show === 'history') await page.getByRole('link', { name: /^History/ }).click()
      await page.getByRole('list', { name: show === 'log' ? 'Log, oldest first' : 'History, oldest first' }).waitFor()
      await check(page, `workflow ${show} ${look.name}`, { axeToo: look.name === 'light' || look.name === 'dark' })
      await shot(page, `workflow-${show}-${look.name}`)
    }
    await page.finish()
  })
}

test('who did what, with what changed, by keyboard, with filters that are in the address; only for owners', async () => {
  const made = await graphql(stack, 'mutation($i: CreateMemberInput!) { createMember(input: $i) { errors { message } } }', { i: { name: 'auditor', kind: 'USER', role: 'VIEWER' } })
  assert.deepEqual(made.createMember.errors, [])
  const page = await open(browser, stack)
  const link = page.getByRole('link', { name: 'Activity', exact: true })
  await tabTo(page, link)
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'Activity' }).waitFor()
  await tabTo(page, page.getByLabel('What', { exact: true }))
  await page.keyboard.type('createMember')
  await page.keyboard.press('Enter')
  await page.waitForURL(/action=createMember/)
  const row = page.getByRole('row', { name: /Create member auditor/ })
  await tabTo(page, row.getByRole('button', { name: /^(Details|Hide) of/ }))
  await page.keyboard.press('Enter')
  await page.getByRole('columnheader', { name: 'After' }).waitFor()
  await check(page, 'the activity with details')
  await shot(page, 'activity-details-light')
  await page.getByRole('button', { name: 'Check all of it now' }).click()
  await page.getByRole('button', { name: 'Check all of it now' }).and(page.locator(':enabled')).waitFor()
  await page.locator('.chain .problem').waitFor({ state: 'detached' })
  await page.goto('/activity?who=nobody-known')
  await page.getByText('The activity cannot be shown').waitFor()
  await page.finish()

  const viewer = await open(browser, stack, { signedIn: false })
  await viewer.goto('/activity')
  await viewer.getByRole('link', { name: 'Sign in with Example ID' }).click()
  await viewer.getByRole('link', { name: 'vera@example.com' }).click()
  await viewer.getByText('The activity is for owners').waitFor()
  assert.equal(await viewer.getByRole('link', { name: 'Activity', exact: true }).count(), 0)
  await check(viewer, 'the activity of a viewer')
  await viewer.finish()
})

test('a failed workflow shows why, and can be retried from the failed step, by keyboard only', async () => {
  const repository = await createRepository(stack, 'reports', 'nightly', ['early'])
  await startWorkflow(stack, 'nightly-report', `print("looks for the report")
run("git.read_file", {"repo_url": "${repository}", "ref": "main", "path": "nightly/late.yaml"})
print("has found it")
`)
  const page = await open(browser, stack)
  await page.goto('/workflows/nightly-report')
  await page.getByRole('heading', { name: 'Why it failed' }).waitFor()
  await page.getByText('nightly/late.yaml').first().waitFor()
  await check(page, 'a failed workflow')
  await shot(page, 'workflow-failed-light')
  await moveFile(stack, 'reports', 'nightly/early.yaml', 'nightly/late.yaml')
  await tabTo(page, page.getByRole('button', { name: 'Retry from the failed step' }))
  await page.keyboard.press('Enter')
  const dialog = page.getByRole('dialog')
  await tabTo(page, dialog.getByRole('textbox'))
  await page.keyboard.type('the file exists now')
  await tabTo(page, dialog.getByRole('button', { name: 'Retry', exact: true }))
  await page.keyboard.press('Enter')
  await page.getByText('has found it').waitFor()
  await page.getByRole('heading', { name: 'Retried' }).waitFor()
  await page.getByText('the file exists now').waitFor()
  assert.equal(await page.getByText('looks for the report').count(), 1, 'the steps before the failed one are not repeated')
  await page.getByRole('heading', { name: 'Why it failed' }).waitFor({ state: 'detached' })
  await shot(page, 'workflow-retried-light')
  await page.finish()
})

// Issue 18, item 9.
test('the timeline of a run has its branches as lanes, with what went into each step and came out, by keyboard', async () => {
  await startWorkflow(stack, 'lanes', `
inbox = channel()

def part(n):
    run("checkpoint", {"state": {"name": "part %d" % n}})
    sleep(n)
    return receive(inbox)

def main(leaf = False):
    if leaf:
        return 7
    child = start_workflow("main.star", {"leaf": True})
    attempt(run, "checkpoint", {"other": 1})
    parts = [spawn(part, n) for n in range(3)]
    await_workflow(child)
    gather(parts)
`)
  const page = await open(browser, stack)
  await page.goto('/workflows/lanes?show=timeline')
  const lanes = page.getByRole('list', { name: 'Branches of the program' })
  await lanes.getByText('Branch 3').waitFor()
  await lanes.getByRole('button', { name: /^receive, open/ }).nth(2).waitFor()
  const call = page.getByRole('list', { name: 'Steps of branch 2' }).getByRole('button', { name: /^run checkpoint, / })
  await tabTo(page, call)
  await page.keyboard.press('Enter')
  const chosen = page.getByRole('region', { name: 'The chosen step' })
  await chosen.getByText('{ "state": { "name": "part 1').waitFor() // what went in
  await chosen.getByText('{ "name": "part 1" }', { exact: true }).waitFor() // what came out
  await chosen.getByText('main.star:').waitFor()
  await check(page, 'the timeline of a workflow')
  await shot(page, 'workflow-timeline-light')
  await lanes.getByRole('button', { name: /^start main.star, / }).click()
  await chosen.getByText('"leaf": true').waitFor()
  assert.equal(await chosen.getByRole('link').count(), 1, 'the child has a link')
  await lanes.getByRole('button', { name: /failed: / }).first().click()
  await chosen.getByRole('heading', { name: 'Error' }).waitFor()
  await shot(page, 'workflow-timeline-failed-light')
  await page.finish()
})

// Issue 18, item 1.
test('what programs can call is listed with its documentation, and found by name', async () => {
  const page = await open(browser, stack)
  await page.goto('/workflows')
  await page.getByRole('link', { name: 'Functions' }).click()
  await page.getByText('No worker has declared a Function here yet.').waitFor()
  await page.getByLabel('Name contains').fill('http.req')
  const request = page.locator('summary', { hasText: 'http.request' })
  await request.focus()
  await page.keyboard.press('Enter')
  await page.getByText(/idempotency/i).first().waitFor()
  assert.equal(await page.locator('summary').count(), 1)
  await check(page, 'the Functions')
  await shot(page, 'functions-light')
  await page.finish()
})

// Issue 18, item 6.
test('a schedule is registered, changed, paused with a reason, backfilled, resumed and deleted; what is wrong is at its field', async () => {
  const page = await open(browser, stack)
  await page.goto('/schedules')
  await page.getByRole('link', { name: 'New schedule' }).click()
  await page.getByLabel('Name').fill('hourly')
  await page.getByLabel('Cron expressions').fill('0 * * *')
  await page.getByLabel('Time zone of the expressions').fill('Europe/Berlin')
  await page.getByLabel('Interval').fill('soon')
  await page.getByText('Expected a duration such as').waitFor()
  await page.getByLabel('Interval').fill('')
  await page.getByRole('button', { name: 'Register' }).click()
  await page.locator('.field', { has: page.getByLabel('Cron expressions') }).getByText(/expected five fields/i).waitFor()
  await check(page, 'a new schedule with findings')
  await page.getByLabel('Cron expressions').fill('0 * * * *')
  await page.getByLabel('Program').fill('print(who, schedule.due_at')
  await page.getByRole('button', { name: 'Register' }).click()
  await page.locator('.field', { has: page.getByLabel('Program') }).locator('.problem').waitFor()
  await shot(page, 'new-schedule-light')
  await page.getByLabel('Program').fill('print(who, schedule.due_at)\n')
  await page.getByLabel('Inputs').fill('{"who": "me"}')
  await page.getByRole('button', { name: 'Register' }).click()
  await page.getByRole('heading', { name: 'hourly' }).waitFor()
  assert.equal(await page.getByRole('region', { name: 'Next' }).getByRole('listitem').count(), 10)
  await page.getByText('print(who, schedule.due_at)').waitFor()
  await check(page, 'a schedule')
  await shot(page, 'schedule-light')

  // A new one of the same name replaces nothing.
  await page.goto('/new-schedule')
  await page.getByLabel('Name').fill('hourly')
  await page.getByLabel('Interval').fill('1h')
  await page.getByRole('button', { name: 'Register' }).click()
  await page.getByRole('alert').getByText(/found version 1 of schedule "hourly"/).waitFor()
  page.once('dialog', (d) => void d.accept())
  await page.goto('/schedules/hourly')

  await page.getByRole('button', { name: 'Change', exact: true }).click()
  assert.equal(await page.getByRole('textbox', { name: 'Program' }).inputValue(), 'print(who, schedule.due_at)\n')
  await page.getByLabel('Cron expressions').fill('30 * * * *\n@daily')
  await page.getByLabel('While another run is under way').selectOption('ALLOW')
  await page.getByLabel('Jitter').fill('5s')
  await check(page, 'a change of a schedule')
  await page.getByRole('button', { name: 'Save version 2' }).click()
  await page.getByRole('heading', { name: 'hourly' }).waitFor()
  await page.getByText('30 * * * *, @daily (Europe/Berlin)').waitFor()
  await page.getByText('version 2 of the schedule').waitFor()

  await page.getByRole('button', { name: 'Pause', exact: true }).click()
  await page.getByLabel('Reason').fill('see incident 81')
  await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click()
  await page.getByRole('heading', { name: 'Why it is paused' }).waitFor()
  await page.getByText('see incident 81').waitFor()

  // Ranges in the past are started while it is paused; those to come are refused.
  const local = (at) => new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
  await page.getByRole('button', { name: 'Backfill', exact: true }).click()
  await page.getByLabel('From').fill(local(Date.now() - 2 * 3_600_000))
  await page.getByLabel('Until').fill(local(Date.now() + 3_600_000))
  await page.getByRole('dialog').getByRole('button', { name: 'Backfill' }).click()
  await page.getByRole('dialog').getByText(/expected no time to come/).waitFor()
  await check(page, 'a backfill that is refused')
  await page.getByLabel('Until').fill(local(Date.now() - 1_000))
  await page.getByRole('dialog').getByRole('button', { name: 'Backfill' }).click()
  await page.getByRole('row', { name: /Started on request/ }).nth(1).waitFor()
  await page.getByRole('row', { name: /Started on request/ }).first().getByRole('link').click()
  await page.getByText(/^me 20\d\d-/).waitFor()
  await page.goto('/schedules/hourly')
  await page.getByRole('button', { name: 'Resume', exact: true }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Resume' }).click()
  await page.getByRole('region', { name: 'Next' }).waitFor()

  await page.getByRole('button', { name: 'Delete', exact: true }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
  await page.getByRole('heading', { name: 'Schedules', exact: true }).waitFor()
  await page.getByText('No schedules here').waitFor()
  await page.finish()

  const viewer = await open(browser, stack, { signedIn: false })
  await viewer.goto('/new-schedule')
  await viewer.getByRole('link', { name: 'Sign in with Example ID' }).click()
  await viewer.getByRole('link', { name: 'vera@example.com' }).click()
  await viewer.getByLabel('Name').fill('mine')
  await viewer.getByLabel('Interval').fill('1h')
  await viewer.getByRole('button', { name: 'Register' }).click()
  await viewer.getByRole('alert').getByText(/needs the permission "configure"/).waitFor()
  await viewer.finish()
})

test('a source is tested before it is added, checked when asked, and its form is the schema’s', async () => {
  const page = await open(browser, stack)
  await page.goto('/sources/new?application=shop')
  await page.getByLabel('Service').selectOption({ label: 'api' })
  await page.getByLabel('Kind').selectOption('oci-image@1')
  await page.getByRole('button', { name: 'Test' }).click()
  await page.getByText('Required.').first().waitFor()
  assert.equal(await page.getByLabel('Range of versions').count(), 0, 'a range is for versions alone')
  await page.locator('summary').filter({ hasText: 'optional' }).click()
  await page.getByLabel('Which tags count').selectOption({ label: 'The highest version in a range' })
  await page.getByLabel('Range of versions').fill('>=1.0.0')
  await page.getByLabel('Image').fill(`${stack.oci}/shop/nothing-here`)
  await page.getByRole('button', { name: 'Test' }).click()
  await page.getByRole('status').filter({ hasText: /\w/ }).first().waitFor()
  await shot(page, 'new-source-tested-light')
  await check(page, 'a source that was tested')
  await page.goto('/sources')
  const look = page.getByRole('button', { name: /^Check now/ }).first()
  await look.focus()
  await page.keyboard.press('Enter')
  await page.getByRole('row').filter({ has: look }).getByRole('status').filter({ hasText: /Found|No matching|found/ }).waitFor()
  await page.finish()
})

test('what was refused of the deliveries of a hook or token is on the page of sources, with its reason; for those who may configure', async () => {
  const target = { repository: 'shop/api', digest: 'sha256:short', tag: '9.9.9', mediaType: 'application/vnd.oci.image.manifest.v1+json' }
  for (let i = 0; i < 2; i++) {
    const sent = await fetch(new URL('/v1/notifications/distribution', stack.registry), {
      method: 'POST', headers: { 'Content-Type': 'application/vnd.docker.distribution.events.v2+json', Authorization: `Bearer ${stack.token}` },
      body: JSON.stringify({ events: [{ id: `refused-${i}`, action: 'push', target, request: { host: stack.oci } }] }),
    })
    assert.equal(sent.status, 200)
  }
  for (const look of [{ name: 'light' }, { name: 'dark', dark: true }, { name: '390', width: 390, height: 844 }]) {
    const page = await open(browser, stack, look)
    await page.goto('/sources')
    const refusals = page.getByRole('region', { name: 'Webhooks and CI tokens' }).getByRole('list', { name: /^Last refusals of/ })
    await refusals.getByText('shop/api:9.9.9@sha256:short').waitFor()
    await refusals.getByText(/expected sha256: and 64 hexadecimal digits/).waitFor()
    await refusals.getByText(/2 times since/).waitFor()
    await check(page, `refusals ${look.name}`)
    await shot(page, `refusals-${look.name}`)
    await page.finish()
  }
  const viewer = await open(browser, stack, { signedIn: false })
  await viewer.goto('/sources')
  await viewer.getByRole('link', { name: 'Sign in with Example ID' }).click()
  await viewer.getByRole('link', { name: 'vera@example.com' }).click()
  await viewer.getByRole('button', { name: /^Check now/ }).first().waitFor()
  assert.equal(await viewer.getByText('Webhooks and CI tokens').count(), 0)
  await viewer.finish()
})

test('a member gets a token, which is shown once, works, and is revoked; who may not says why', async () => {
  const page = await open(browser, stack)
  await page.goto('/access')
  await page.getByRole('button', { name: 'Add a member' }).click()
  await page.getByLabel('Name').fill('robot-1')
  await page.getByLabel('Kind').selectOption('AGENT')
  await page.getByLabel('Role', { exact: true }).selectOption('DEPLOYER')
  await page.getByRole('dialog').getByRole('button', { name: 'Add' }).click()
  await page.getByRole('button', { name: 'Tokens of robot-1' }).click()
  await page.getByRole('button', { name: 'Make a token' }).click()
  await page.getByLabel('Name').fill('nightly')
  await page.getByRole('checkbox', { name: /^deploy/ }).check()
  await shot(page, 'new-token-light')
  await page.getByRole('dialog').getByRole('button', { name: 'Make' }).click()
  const secret = page.getByRole('group', { name: 'The token “nightly”' })
  const token = await secret.locator('code').textContent()
  assert.match(token, /^lockstep_/)
  await shot(page, 'token-shown-light')
  await check(page, 'a token that is shown')
  const asks = () => fetch(stack.graphql, { method: 'POST', headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` }, body: JSON.stringify({ query: '{ viewer { permissions } }' }) })
  assert.deepEqual((await (await asks()).json()).data.viewer.permissions, ['READ', 'DEPLOY'])
  await secret.getByRole('button', { name: 'I have kept it' }).click()
  assert.equal(await page.getByText(token).count(), 0)
  await page.getByRole('button', { name: 'Revoke nightly' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
  await page.getByText('Revoked', { exact: true }).waitFor()
  assert.equal((await asks()).status, 401)
  await page.goto('/access?show=groups')
  await page.getByRole('button', { name: 'Make a group' }).click()
  await page.getByLabel('Name').fill('release-managers')
  await page.getByLabel('robot-1').check()
  await page.getByRole('dialog').getByRole('button', { name: 'Make' }).click()
  await page.getByRole('row', { name: /release-managers/ }).getByText('robot-1').waitFor()
  await page.finish()

  const viewer = await open(browser, stack, { signedIn: false })
  await viewer.goto('/access')
  await viewer.getByRole('link', { name: 'Sign in with Example ID' }).click()
  await viewer.getByRole('link', { name: 'vera@example.com' }).click()
  const add = viewer.getByRole('button', { name: 'Add a member' })
  await add.focus()
  await viewer.getByRole('tooltip').filter({ hasText: 'administer' }).first().waitFor()
  await shot(viewer, 'access-viewer-light')
  await check(viewer, 'access of a viewer')
  await viewer.finish()
})

test('an agent is registered and gets another key, each shown once; then it is revoked', async () => {
  const page = await open(browser, stack)
  await page.goto('/agents')
  await page.getByRole('button', { name: 'Register an agent' }).click()
  await page.getByLabel('Name').fill('eu-west-1')
  await page.getByRole('dialog').getByRole('button', { name: 'Register' }).click()
  const secret = page.getByRole('group', { name: 'The key of eu-west-1' })
  const first = await secret.locator('code').textContent()
  assert.match(first, /^SU[A-Z2-7]{50,}$/)
  await shot(page, 'agent-registered-light')
  await check(page, 'an agent that was registered')
  await page.getByRole('button', { name: 'Rotate key of eu-west-1' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Make the key' }).click()
  await page.getByText('replaced, until').waitFor()
  assert.notEqual(await secret.locator('code').textContent(), first)
  await page.getByRole('button', { name: 'Revoke eu-west-1' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
  await page.getByRole('region', { name: 'Agent eu-west-1' }).getByText('Revoked', { exact: true }).waitFor()
  await page.finish()
})

for (const look of [{ name: 'dark', dark: true }, { name: 'forced', forced: true, dark: true }]) {
  test(`the pipeline editor in every form, chosen and with findings, ${look.name}`, async () => {
    const page = await open(browser, stack, look)
    await page.goto('/applications/shop/pipeline')
    await page.getByText('Valid', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Add Approval' }).click()
    await page.getByRole('button', { name: /^Deploy.*staging/ }).click()
    await page.getByLabel('Percent').first().fill('99')
    await page.getByRole('button', { name: /^Deploy.*staging.*error/ }).waitFor()
    for (const view of ['Canvas', 'List', 'JSON']) {
      await page.getByRole('button', { name: view, exact: true }).click()
      // Of forced colours axe sees those that the page wanted, not those that are shown.
      await check(page, `pipeline ${view} ${look.name}`, { axeToo: !look.forced })
      await shot(page, `pipeline-${view.toLowerCase()}-${look.name}`)
    }
    await page.finish()
  })
}

test('a pipeline is made on the canvas, by keyboard and by dragging; the list is the same; the server says what is wrong at its step', async () => {
  const page = await open(browser, stack)
  await page.goto('/applications/shop/pipeline')
  const steps = page.getByRole('list', { name: 'Steps, in order' }).getByRole('listitem')
  const order = async () => (await steps.getByRole('button').locator('strong').allTextContents()).join(' ')
  await page.getByText('Valid', { exact: true }).waitFor()
  await shot(page, 'pipeline-canvas-light')
  await check(page, 'pipeline canvas')
  const before = await order()
  await page.getByRole('button', { name: 'Add Approval' }).click()
  assert.equal(await order(), `${before} approval`)
  await steps.last().getByRole('button').focus()
  await page.keyboard.press('Shift+ArrowLeft')
  assert.equal((await order()).split(' ').at(-2), 'approval')
  await steps.nth(1).getByRole('button').dragTo(steps.first().getByRole('button'), { targetPosition: { x: 5, y: 20 } })
  const now = await order()
  assert.equal(now.split(' ')[0], before.split(' ')[1] ?? 'approval')
  await steps.first().getByRole('button').focus()
  await page.getByRole('button', { name: /^Deploy.*staging/ }).click()
  const weights = page.getByLabel('Percent')
  await weights.first().fill('99')
  await page.getByRole('button', { name: /^Deploy.*staging.*error/ }).waitFor()
  await page.locator('.gate-row [aria-invalid]').first().waitFor()
  await shot(page, 'pipeline-wrong-light')
  await check(page, 'pipeline with findings')
  await weights.first().fill('10')
  await page.getByText('Valid', { exact: true }).waitFor()
  await page.getByRole('button', { name: 'List', exact: true }).click()
  assert.deepEqual((await page.getByRole('heading', { level: 2, name: /^Step/ }).allTextContents()).map((t) => t.replace(/^Step \d+: /, '')).join(' '), now)
  await shot(page, 'pipeline-list-light')
  await check(page, 'pipeline list')
  await page.getByRole('button', { name: 'Remove approval' }).click()
  await page.getByRole('button', { name: /^Save version/ }).click()
  await page.getByRole('heading', { name: 'shop', exact: true }).waitFor()
  await page.finish()
})

/** The pipeline of shop as it is stored; with another one, that is saved first. */
async function pipelineOfShop(definition) {
  if (definition) {
    const made = await graphql(stack, 'mutation($i: CreateFlowDefinitionInput!) { createFlowDefinition(input: $i) { errors { message } } }', { i: { application: 'shop', definition } })
    assert.deepEqual(made.createFlowDefinition.errors, [])
  }
  return (await graphql(stack, '{ application(name: "shop") { flowDefinition { definition } } }')).application.flowDefinition.definition
}

for (const view of ['Canvas', 'List', 'JSON']) {
  test(`a step that moves takes nothing else of a pipeline with it: ${view}`, async () => {
    const before = await pipelineOfShop()
    const whole = {
      checks: { active: [{ kind: 'health' }], proposed: [{ key: 'change-ticket' }] },
      deadline: { after: 86400, on_expiry: 'abort' },
      rollback_deadline: { after: 3600 },
      work_deadline: 7200,
      commitMatcher: { quickSync: '^docs: ' },
      alwaysUsePipeline: true,
      compareManifests: true,
      inputs: { type: 'object', properties: { region: { type: 'string', enum: ['eu', 'us'], default: 'eu' } } },
      steps: [...before.steps, { type: 'pause', name: 'wait', duration: 5, skip_on: { paths: ['docs/**'] } }],
    }
    whole.steps[0] = { ...whole.steps[0], checks: { active: [{ kind: 'timer', duration: 60 }] }, deadline: { after: 7200 }, after: [{ name: 'smoke', template: 'kind: Job', skip_on: { paths: ['docs/**'] } }] }
    assert.deepEqual(await pipelineOfShop(whole), whole)
    const want = { ...whole, steps: [...whole.steps.slice(0, -2), ...whole.steps.slice(-2).reverse()] }
    const page = await open(browser, stack)
    await page.goto('/applications/shop/pipeline')
    await page.getByText('Valid', { exact: true }).waitFor()
    await page.getByRole('button', { name: view, exact: true }).click()
    if (view === 'Canvas') {
      await page.getByRole('button', { name: /^Pause.*wait/ }).focus()
      await page.keyboard.press('Shift+ArrowLeft')
    } else if (view === 'List') {
      await page.getByRole('button', { name: 'Move wait up' }).click()
    } else {
      const text = page.getByLabel('The document')
      assert.deepEqual(JSON.parse(await text.inputValue()), whole)
      await text.fill(JSON.stringify(want))
    }
    await page.getByText('Valid', { exact: true }).waitFor()
    await page.getByRole('button', { name: /^Save version/ }).click()
    await page.getByRole('heading', { name: 'shop', exact: true }).waitFor()
    assert.deepEqual(await pipelineOfShop(), want)
    await pipelineOfShop(before)
    await page.finish()
  })
}

test('a pipeline with changes is not left without asking, and asks nothing once it is saved', async () => {
  const page = await open(browser, stack)
  const asked = []
  let answer = false
  page.on('dialog', (d) => {
    asked.push(d.type())
    return answer ? d.accept() : d.dismiss()
  })
  await page.goto('/applications/shop/pipeline')
  await page.getByText('Valid', { exact: true }).waitFor()
  await page.getByRole('link', { name: 'Rollouts', exact: true }).click()
  await page.getByRole('heading', { name: 'Rollouts' }).waitFor()
  assert.deepEqual(asked, [])
  await page.goto('/applications/shop/pipeline')
  await page.getByRole('button', { name: 'Add Approval' }).click()
  const question = page.waitForEvent('dialog')
  await page.getByRole('link', { name: 'Rollouts', exact: true }).click()
  await question
  await page.getByRole('heading', { name: /^Pipeline of shop/ }).waitFor()
  assert.deepEqual(asked, ['confirm'])
  answer = true
  await page.getByRole('link', { name: 'Rollouts', exact: true }).click()
  await page.getByRole('heading', { name: 'Rollouts' }).waitFor()
  assert.deepEqual(asked, ['confirm', 'confirm'])
  await page.finish()
})

test('a form asks for what is missing once it is left or saved, not before', async () => {
  const page = await open(browser, stack)
  await page.goto('/applications/shop/pipeline')
  await page.getByText('Valid', { exact: true }).waitFor()
  await page.getByRole('button', { name: /^Deploy.*staging/ }).click()
  const container = page.getByLabel('Container')
  await container.first().fill('')
  await page.getByText('1 field to fill in').waitFor()
  assert.equal(await page.getByText('Required.').count(), 0)
  await container.first().blur()
  await page.getByText('Required.').first().waitFor()
  await page.getByText('1 error', { exact: true }).first().waitFor()
  await page.finish()
})

test('as an American reads it, with motion: times beside their text, an arrow that stands still, actions in sight', async () => {
  const page = await open(browser, stack, { locale: 'en-US', motion: true })
  await page.goto('/rollouts/rollout_1')
  const entry = page.locator('.entry').first()
  await entry.waitFor()
  const overlap = await page.locator('.entry').evaluateAll((all) => all.filter((e) => {
    const [time, text] = e.children
    return time.getBoundingClientRect().right > text.getBoundingClientRect().left || time.scrollWidth > time.clientWidth
  }).length)
  assert.equal(overlap, 0, 'times that run into their text')
  assert.match(await entry.locator('time').textContent(), /[AP]M$/)
  const turning = await page.locator('.changes .chip .icon').evaluateAll((all) => all.filter((e) => e.getAnimations().length > 0).length)
  assert.equal(turning, 0, 'icons that turn')
  // Five environments at 1440 pixels look like two at this width.
  await page.setViewportSize({ width: 840, height: 900 })
  await page.goto('/')
  const table = page.getByRole('region', { name: 'Applications by environment' })
  await table.waitFor()
  const act = table.getByRole('button', { name: /^Roll out/ }).first()
  const [box, frame, wide] = [await act.boundingBox(), await table.boundingBox(), await table.evaluate((e) => e.scrollWidth > e.clientWidth)]
  assert.ok(wide, 'the matrix was to be wider than its window')
  assert.ok(box.x >= frame.x && box.x + box.width <= frame.x + frame.width, `Roll out at ${box.x}+${box.width}, outside of ${frame.x}+${frame.width}`)
  await shot(page, 'matrix-narrow-light')
  await page.finish()
})

test('policies and a required approval are changed, an application and an environment archived and restored, by keyboard only; who may not says why', async () => {
  const page = await open(browser, stack)
  const dialog = page.getByRole('dialog')
  const press = async (name) => {
    await tabTo(page, page.getByRole('button', { name, exact: true }))
    await page.keyboard.press('Enter')
    await dialog.waitFor()
  }
  const write = async (label, text) => {
    await tabTo(page, dialog.getByLabel(label))
    await page.keyboard.press('Control+A')
    await page.keyboard.type(text)
  }
  const send = async () => {
    await page.keyboard.press('Enter')
    await dialog.waitFor({ state: 'detached' })
  }
  await page.goto('/applications/shop')
  const policies = page.getByRole('region', { name: 'Policies' })
  await policies.getByText('At once when a rollout fails').waitFor()
  await press('Change the rollback policy')
  await tabTo(page, dialog.getByLabel('When a rollout fails'))
  await page.keyboard.press('Space')
  await write('Minutes degraded before it rolls back', '5')
  await check(page, 'rollback policy')
  await shot(page, 'rollback-policy-light')
  await send()
  await policies.getByText('When a service has been degraded for 5 min').waitFor()
  assert.equal(await policies.getByText('At once when a rollout fails').count(), 0)
  await press('Change the rollout policy')
  await tabTo(page, dialog.getByLabel('When a newer version set arrives during a rollout'))
  await page.keyboard.type('Queue')
  await shot(page, 'rollout-policy-light')
  await tabTo(page, dialog.getByRole('button', { name: 'Save' }))
  await send()
  await policies.getByText('Queue it: the latest one starts').waitFor()

  await press('Archive shop')
  await page.keyboard.type('sold')
  await check(page, 'archive an application')
  await shot(page, 'archive-application-light')
  await send()
  await page.getByRole('region', { name: 'Archived' }).getByText('sold').waitFor()
  const rollOut = page.getByRole('button', { name: 'Roll out', exact: true })
  await rollOut.focus()
  await page.getByRole('tooltip').getByText(/was archived at/).waitFor()
  await check(page, 'an archived application')
  await shot(page, 'application-archived-light')
  await page.goto('/?q=shop')
  await page.getByText('No matching applications').waitFor()
  await page.goto('/applications/shop')
  await press('Restore shop')
  await send()
  await page.getByRole('button', { name: 'Archive shop' }).waitFor()
  assert.equal(await rollOut.getAttribute('aria-disabled'), null)

  // A quorum of more people than may approve would be refused.
  for (const name of ['approver-1', 'approver-2']) {
    const made = await graphql(stack, 'mutation($i: CreateMemberInput!) { createMember(input: $i) { errors { message } } }', { i: { name, kind: 'USER', role: 'APPROVER' } })
    assert.deepEqual(made.createMember.errors, [])
  }
  await page.goto('/environments/production')
  const required = page.getByRole('region', { name: 'Required approval' })
  await press('Require an approval')
  await write('How many different people', '2')
  await write('Hours until it expires', '1000')
  await page.keyboard.press('Enter')
  assert.equal(await dialog.getByLabel('Hours until it expires').evaluate((e) => e.validity.rangeOverflow), true)
  await write('Hours until it expires', '24')
  await check(page, 'required approval')
  await shot(page, 'required-approval-light')
  await send()
  await required.getByText('2 different people other than the requester; without an answer in 1 d it is rejected.').waitFor()
  await press('Require none')
  await tabTo(page, dialog.getByRole('button', { name: 'Require none' }))
  await send()
  await required.getByText('None: rollouts enter as their pipelines say.').waitFor()

  await page.goto('/environments/staging')
  await press('Archive staging')
  await send()
  await page.getByRole('region', { name: 'Archived' }).waitFor()
  await check(page, 'an archived environment')
  await shot(page, 'environment-archived-light')
  await press('Restore staging')
  await send()
  await page.locator('.page-head').getByText('Ready', { exact: true }).waitFor({ timeout: 60_000 })
  await page.finish()

  const viewer = await open(browser, stack, { signedIn: false })
  await viewer.goto('/applications/shop')
  await viewer.getByRole('link', { name: 'Sign in with Example ID' }).click()
  await viewer.getByRole('link', { name: 'vera@example.com' }).click()
  for (const [route, names] of [
    ['/applications/shop', ['Change the rollback policy', 'Change the rollout policy', 'Archive shop']],
    ['/environments/staging', ['Require an approval', 'Archive staging']],
  ]) {
    await viewer.goto(route)
    for (const name of names) {
      const button = viewer.getByRole('button', { name, exact: true })
      await button.focus()
      assert.equal(await button.getAttribute('aria-disabled'), 'true')
      await viewer.getByRole('tooltip').filter({ hasText: 'configure' }).filter({ visible: true }).waitFor()
    }
  }
  await check(viewer, 'an environment of a viewer')
  await viewer.finish()
})
