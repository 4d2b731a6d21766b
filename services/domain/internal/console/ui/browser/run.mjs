// Tests of the console in a real browser against a real stack. `make console-test` runs them; SHOTS=DIR keeps pictures.
import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { check, launch, open, shot, tabTo } from './page.mjs'
import { createRepository, graphql, moveFile, pushImage, rolloutState, rollTo, start, tell, until } from './stack.mjs'

let browser
let dir

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'console-'))
  await chmod(dir, 0o755) // PostgreSQL runs as an account of its own
  browser = await launch()
})

after(async () => {
  await browser?.close()
  await rm(dir, { recursive: true, force: true, maxRetries: 5 })
})

describe('an installation with a history', () => {
  let stack
  before(async () => {
    await tell(join(dir, 'story'))
    stack = await start(join(dir, 'story'))
  })
  after(() => stack?.stop())

  test('signing in, with a wrong and a right token, and out', async () => {
    const page = await open(browser, stack, { signedIn: false })
    await page.goto('/rollouts/rollout_2')
    await check(page, 'sign-in')
    await shot(page, 'sign-in-light')
    await page.getByLabel('Token').fill('not-a-token-of-theirs')
    await page.keyboard.press('Enter')
    await page.getByRole('alert').getByText('found a token that nobody has').waitFor()
    await page.getByLabel('Token').fill(stack.token)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: /^shop: set-/ }).waitFor()
    const readable = await page.evaluate(() => document.cookie)
    assert.equal(readable, '')
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('Token').waitFor()
    await page.finish()
  })

  test('a session that ends is asked for where one is; the way back leads through the pages; times are absolute on hover', async () => {
    const page = await open(browser, stack)
    await page.goto('/rollouts?state=failed')
    await page.getByRole('link', { name: 'shop: set-5' }).click()
    await page.getByRole('heading', { name: 'Why it failed' }).waitFor()
    await page.getByRole('link', { name: 'Environments' }).click()
    await page.getByRole('link', { name: 'staging', exact: true }).click()
    await page.locator('main h1:focus').waitFor()
    assert.match(await page.locator('main time').first().getAttribute('title'), /2\d{3}.*\d\d:\d\d:\d\d/)
    await page.goBack()
    await page.goBack()
    await page.getByRole('heading', { name: 'Why it failed' }).waitFor()
    await page.context().clearCookies()
    await page.getByRole('link', { name: 'Applications' }).click()
    await page.getByLabel('Token').waitFor()
    assert.match(page.url(), /\/applications$/)
    await page.getByLabel('Token').fill(stack.token)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Applications' }).waitFor()
    await page.goBack()
    await page.getByRole('heading', { name: 'Why it failed' }).waitFor()
    await page.finish()
  })

  test('an open gate is approved from the inbox, by keyboard only', async () => {
    const id = await rollTo(stack, 'set-1')
    const page = await open(browser, stack)
    await tabTo(page, page.getByRole('link', { name: /Waiting for me/ }))
    await page.keyboard.press('Enter')
    const approve = page.getByRole('button', { name: 'Approve release of set-1 of shop' })
    await approve.waitFor({ timeout: 60_000 })
    await check(page, 'waiting')
    await shot(page, 'inbox-open-light')
    await tabTo(page, approve)
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').waitFor()
    await shot(page, 'approve-light')
    await page.keyboard.type('looks good')
    await page.keyboard.press('Enter')
    await page.getByText('Nothing waits for you').waitFor()
    await until('the end of the rollout', async () => (await rolloutState(stack, id)).state === 'COMPLETED')
    await page.finish()
  })

  test('a rollout is begun by keyboard only, moves through joint gates while the server restarts; focus and scroll stay', async () => {
    const { application } = await graphql(stack, '{ application(name: "shop") { environments { environment { name } live { name } } } }')
    const live = application.environments.find((e) => e.environment.name === 'production').live.name
    const next = live === 'set-3' ? 'set-1' : 'set-3' // what is live already needs no gates
    const page = await open(browser, stack, { height: 600 })
    await tabTo(page, page.getByRole('button', { name: 'Roll out shop' }))
    await page.keyboard.press('Enter')
    const dialog = page.getByRole('dialog')
    const set = dialog.getByLabel('Version set')
    await tabTo(page, set)
    await page.keyboard.type(next)
    await dialog.getByRole('region', { name: 'What changes' }).first().waitFor()
    // What it would commit is compared with the repository as it is, before anything is begun.
    const foretold = dialog.getByRole('region', { name: 'What it commits' })
    const details = foretold.locator('details').filter({ hasText: 'production' })
    await details.locator('summary').click()
    await details.getByLabel(/^What changes in production\//).first().waitFor()
    const promised = await details.locator('.added').allTextContents()
    assert.ok(promised.some((line) => line.includes('image:')), `found ${promised}`)
    await shot(page, 'promote-light')
    await check(page, 'promote')
    await tabTo(page, dialog.getByRole('button', { name: 'Roll out', exact: true }))
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: `shop: ${next}` }).waitFor()
    await page.getByRole('heading', { name: 'Why is it waiting?' }).waitFor()
    await page.evaluate(() => (globalThis.sameDocument = true))
    for (const verb of ['Pause', 'Resume']) {
      await page.getByRole('button', { name: verb, exact: true }).click()
      await dialog.getByRole('button', { name: verb, exact: true }).click()
      await dialog.waitFor({ state: 'detached' })
    }
    const journal = page.getByLabel('Journal, newest first')
    await journal.focus()
    await page.evaluate(() => window.scrollTo(0, 120))
    const scroll = await page.evaluate(() => window.scrollY)
    await shot(page, 'rollout-moving-light')
    await stack.crash('domain')
    const approve = page.getByRole('button', { name: /^Approve release/ })
    await approve.waitFor({ timeout: 60_000 })
    assert.equal(await journal.evaluate((e) => e === document.activeElement), true)
    // What is above may have grown or shrunk; the window stays with what it shows.
    const moved = (await page.evaluate(() => window.scrollY)) - scroll
    assert.ok(Math.abs(moved) < 120, `scrolled by ${moved}`)
    await check(page, 'rollout that waits')
    await shot(page, 'rollout-waiting-light')
    await approve.click()
    await dialog.getByRole('button', { name: 'Approve' }).click()
    await dialog.waitFor({ state: 'detached' })
    await journal.focus()
    await stack.crash('domain')
    await page.locator('.page-head .chip').getByText('Completed').waitFor({ timeout: 60_000 })
    // Both services came to every gate, together, in both environments; and the page was never loaded anew.
    const lanes = page.getByRole('list', { name: 'The course of this rollout' }).locator('.lane')
    for (const lane of await lanes.all()) assert.deepEqual(await lane.locator('thead').getByText(/of 2 came/).allTextContents(), ['2 of 2 came', '2 of 2 came', '2 of 2 came'])
    assert.equal(await lanes.count(), 2)
    assert.equal(await journal.evaluate((e) => e === document.activeElement), true)
    assert.equal(await page.evaluate(() => globalThis.sameDocument), true)
    await page.getByText('What was committed for production').click()
    const kept = page.locator('details').filter({ hasText: 'What was committed for production' }).locator('.added')
    await kept.first().waitFor()
    assert.deepEqual(await kept.allTextContents(), promised)
    for (const verb of ['Pause', 'Abort', 'Retry', 'Cancel rollout']) {
      const button = page.getByRole('button', { name: verb, exact: true })
      assert.equal(await button.getAttribute('aria-disabled'), 'true')
      await button.focus()
      await page.getByRole('tooltip').getByText(/is (over|completed)/).waitFor()
    }
    await page.getByLabel('Parameters of web in production').getByText('/shop/web').waitFor()
    await page.getByRole('button', { name: 'Workflow log' }).click()
    await page.getByLabel('Workflow log, newest first').getByRole('listitem').first().waitFor()
    await check(page, 'workflow log')
    await shot(page, 'rollout-log-light')
    await page.finish()
  })

  test('without a network it says so, and goes on from there; tabs share one stream', async () => {
    const page = await open(browser, stack)
    const id = await rollTo(stack, 'set-1')
    const isStream = (r) => r.headers().accept === 'text/event-stream'
    const first = page.waitForRequest(isStream)
    await page.goto(`/rollouts/${id}`)
    await first
    const approve = (p) => p.getByRole('button', { name: /^Approve release/ })
    await approve(page).waitFor({ timeout: 60_000 })
    const second = await page.context().newPage()
    const streams = []
    second.on('request', (r) => isStream(r) && streams.push(r))
    await second.goto(`/rollouts/${id}`)
    await approve(second).waitFor()
    await page.context().setOffline(true)
    await page.getByText('Lockstep does not answer.').waitFor({ timeout: 60_000 })
    await check(page, 'away')
    await shot(page, 'away-light')
    const made = await graphql(stack, 'mutation($i: ResolveGateInput!) { rejectGate(input: $i) { errors { message } } }', { i: { rolloutId: id, gateId: 'release', reason: 'while nobody looked' } })
    assert.deepEqual(made.rejectGate.errors, [])
    await page.context().setOffline(false)
    for (const p of [page, second]) await p.getByRole('heading', { name: 'Why it was cancelled' }).waitFor({ timeout: 60_000 })
    await page.getByText('Lockstep does not answer.').waitFor({ state: 'detached' })
    await shot(page, 'rollout-cancelled-light')
    assert.deepEqual(streams, [])
    await page.close()
    await until('the other tab to read the stream', () => streams.length > 0)
    await page.finish()
  })

  test('rolling back, by keyboard only', async () => {
    const page = await open(browser, stack)
    await page.goto('/rollouts/rollout_2')
    const back = page.getByRole('button', { name: 'Roll back', exact: true })
    await tabTo(page, back)
    await page.keyboard.press('Enter')
    const go = page.getByRole('dialog').getByRole('button', { name: 'Roll back' })
    await page.getByRole('dialog').getByLabel('Version set').waitFor()
    await shot(page, 'roll-back-light')
    await check(page, 'roll back')
    await tabTo(page, go)
    await page.keyboard.press('Enter')
    await page.waitForURL(/rollout_(?!2$)\d+$/)
    await page.locator('main h1:focus').waitFor()
    const cancel = page.getByRole('button', { name: 'Cancel rollout' })
    await tabTo(page, cancel)
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').getByLabel('Reason').waitFor()
    await page.keyboard.type('only a test')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Why it was cancelled' }).waitFor()
    await page.finish()
  })

  const routes = ['/', '/start', '/?q=sho&health=healthy', '/?q=nothing', '/waiting', '/rollouts', '/rollouts?state=failed', '/rollouts/rollout_2', '/rollouts/rollout_2?beside=log', '/rollouts/rollout_3', '/rollouts/rollout_999', '/applications', '/applications/shop',
    '/applications/shop/sets', '/applications/shop/pipeline', '/applications/new', '/applications/nothing', '/environments', '/environments/staging', '/environments/new', '/nowhere']
  for (const look of [{ name: 'light' }, { name: 'dark', dark: true }, { name: '320', width: 320, height: 700 }, { name: '200-percent', width: 680, height: 450, zoom: 2 }, { name: 'forced', forced: true }]) {
    test(`every route, ${look.name}`, async () => {
      const page = await open(browser, stack, look)
      for (const route of routes) {
        await page.goto(route)
        await page.locator('main h1').waitFor()
        await until('everything on the page', async () => (await page.locator('main .loading').count()) === 0)
        await check(page, `${route} ${look.name}`, { axeToo: look.name === 'light' || look.name === 'dark' })
        await shot(page, `${route.replaceAll(/[/?=&]/g, '-').replace(/^-/, '') || 'where'}-${look.name}`)
      }
      await page.finish()
    })
  }

  test('what changed between two sets is in the address', async () => {
    const page = await open(browser, stack)
    await page.goto('/applications/shop/sets')
    await page.getByLabel('From').selectOption({ label: 'set-1' })
    await page.waitForURL(/from=/)
    await page.reload()
    await page.getByRole('region', { name: 'What changes' }).getByText('Changed').first().waitFor()
    assert.equal(await page.getByLabel('From').evaluate((e) => e.selectedOptions[0].textContent), 'set-1')
    await page.finish()
  })
})

test('from an empty installation to the first rollout', async () => {
  const stack = await start(join(dir, 'empty'))
  try {
    const page = await open(browser, stack)
    await page.getByRole('heading', { name: 'Welcome to Lockstep' }).waitFor()
    await check(page, 'welcome')
    await shot(page, 'welcome-light')
    assert.match(page.url(), /\/start$/)
    const step = (name) => page.getByRole('listitem').filter({ has: page.getByRole('heading', { name }) })
    await page.getByRole('button', { name: 'Create application' }).click()
    await page.getByText(/expected 1 to 63 letters/).first().waitFor()
    await shot(page, 'new-application-wrong-light')
    await page.getByLabel('Name', { exact: true }).fill('books')
    await page.getByLabel('Name of the service').fill('store')
    await page.getByLabel('Image').fill(`${stack.oci}/books/store`)
    await page.keyboard.press('Enter')
    await step(/^An application/).getByRole('link', { name: 'books' }).waitFor()
    // The form has gone with its step, and the focus has gone on to the next one.
    await page.locator('h2:focus').filter({ hasText: 'An environment' }).waitFor()

    await page.getByLabel('Name', { exact: true }).fill('test')
    await page.getByRole('button', { name: 'Create environment' }).click()
    await page.getByText('This is needed.').waitFor()
    await page.getByLabel('Cluster agent').fill('42')
    await page.keyboard.press('Enter')
    await step('An environment').getByText('Ready', { exact: true }).waitFor({ timeout: 60_000 })
    await check(page, 'start, environment')
    await shot(page, 'start-environment-light')

    // Whoever comes back goes on where they were: the server knows how far it is.
    await page.goto('/rollouts')
    await page.goto('/start')
    await page.locator('.steps [aria-current=step]').getByRole('heading', { name: 'A pipeline, and where the manifests are' }).waitFor()
    await page.getByLabel('Argo CD Application', { exact: true }).fill('books-test')
    const repository = await createRepository(stack, 'books', 'test', ['store'])
    await page.getByLabel('Git repository').fill(repository)
    await page.getByLabel('Folder in Git').fill('test')
    await page.getByLabel('Namespace of the workloads').fill('books-test')
    await page.getByLabel('Manifest file').fill('test/nowhere.yaml')
    await page.getByLabel('Container').fill('Not A Container')
    const seconds = page.getByLabel('Seconds between two looks at the cluster')
    await page.locator('details').filter({ has: seconds }).locator('> summary').click()
    await seconds.fill('1')
    await page.getByRole('button', { name: 'Create pipeline' }).click()
    await page.locator('[data-field="services/0/container"][aria-invalid]').waitFor()
    await shot(page, 'new-pipeline-wrong-light')
    await page.getByLabel('Container').fill('store')
    await page.getByRole('button', { name: 'Create pipeline' }).click()
    // The file is not there: the reason is shown where one stands, and once it is there, it is checked again.
    const manifests = step('A pipeline, and where the manifests are')
    await manifests.getByText(/nowhere\.yaml/).waitFor({ timeout: 60_000 })
    await check(page, 'start, not ready')
    await shot(page, 'start-not-ready-light')
    await moveFile(stack, 'books', 'test/store.yaml', 'test/nowhere.yaml')
    const again = manifests.getByRole('button', { name: 'Check again: test' })
    await tabTo(page, again)
    await page.keyboard.press('Enter')
    await manifests.getByText('Ready', { exact: true }).waitFor({ timeout: 60_000 })

    await step('A version of every service').getByText(`${stack.oci}/books/store`).waitFor()
    await shot(page, 'start-almost-light')
    await pushImage(stack, 'books/store', '1.0')
    const go = page.getByRole('button', { name: 'Roll out books' })
    await go.waitFor({ timeout: 60_000 })
    await tabTo(page, go)
    await page.keyboard.press('Enter')
    await tabTo(page, page.getByRole('dialog').getByRole('button', { name: 'Roll out' }))
    await page.keyboard.press('Enter')
    await page.locator('.page-head .chip').getByText('Completed').waitFor({ timeout: 60_000 })
    await shot(page, 'first-rollout-light')
    const { rollouts } = await graphql(stack, '{ rollouts { nodes { state } } }')
    assert.deepEqual(rollouts.nodes, [{ state: 'COMPLETED' }])
    await page.finish()
  } finally {
    await stack.stop()
  }
})
