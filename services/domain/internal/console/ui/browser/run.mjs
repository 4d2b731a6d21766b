// Tests of the console in a real browser against a real stack. `make console-test` runs them; SHOTS=DIR keeps pictures.
import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { check, launch, open, shot, tabTo } from './page.mjs'
import { createRepository, graphql, pushImage, rolloutState, rollTo, start, tell, until } from './stack.mjs'

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

  test('a rollout moves while it is watched and the server restarts; focus and scroll stay', async () => {
    const id = await rollTo(stack, 'set-3')
    const page = await open(browser, stack, { height: 600 })
    await page.goto(`/rollouts/${id}`)
    await page.getByRole('heading', { name: 'Why is it waiting?' }).waitFor()
    for (const verb of ['Pause', 'Resume']) {
      await page.getByRole('button', { name: verb, exact: true }).click()
      await page.getByRole('dialog').getByRole('button', { name: verb, exact: true }).click()
      await page.getByRole('dialog').waitFor({ state: 'detached' })
    }
    const journal = page.getByLabel('Journal, newest first')
    await journal.focus()
    await page.evaluate(() => window.scrollTo(0, 120))
    const scroll = await page.evaluate(() => window.scrollY)
    await shot(page, 'rollout-moving-light')
    await stack.crash('domain')
    await page.getByRole('button', { name: /^Approve release/ }).waitFor({ timeout: 60_000 })
    assert.equal(await journal.evaluate((e) => e === document.activeElement), true)
    assert.equal(await page.evaluate(() => window.scrollY), scroll)
    await check(page, 'rollout that waits')
    await shot(page, 'rollout-waiting-light')
    await page.getByRole('button', { name: /^Reject release/ }).click()
    await page.getByLabel('Reason').fill('not today')
    await page.getByRole('button', { name: 'Reject and cancel' }).click()
    await page.getByRole('heading', { name: 'Why it was cancelled' }).waitFor()
    await shot(page, 'rollout-cancelled-light')
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

  const routes = ['/', '/waiting', '/rollouts', '/rollouts?state=failed', '/rollouts/rollout_2', '/rollouts/rollout_3', '/rollouts/rollout_999', '/applications', '/applications/shop',
    '/applications/shop/sets', '/applications/shop/pipeline', '/applications/new', '/applications/nothing', '/environments', '/environments/staging', '/environments/new', '/nowhere']
  for (const look of [{ name: 'light' }, { name: 'dark', dark: true }, { name: '320', width: 320, height: 700 }, { name: 'forced', forced: true }]) {
    test(`every route, ${look.name}`, async () => {
      const page = await open(browser, stack, look)
      for (const route of routes) {
        await page.goto(route)
        await page.locator('main h1').waitFor()
        await page.locator('main .loading').waitFor({ state: 'detached' })
        await check(page, `${route} ${look.name}`, { axeToo: look.name === 'light' || look.name === 'dark' })
        await shot(page, `${route.replaceAll(/[/?=]/g, '-').replace(/^-/, '') || 'where'}-${look.name}`)
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
    await page.getByRole('link', { name: 'Create an application' }).click()
    await page.getByRole('button', { name: 'Create application' }).click()
    await page.getByText(/expected 1 to 63 letters/).first().waitFor()
    await shot(page, 'new-application-wrong-light')
    await page.getByLabel('Name', { exact: true }).fill('books')
    await page.getByLabel('Name of the service').fill('store')
    await page.getByLabel('Image').fill(`${stack.oci}/books/store`)
    await page.getByRole('button', { name: 'Create application' }).click()
    await page.getByRole('heading', { name: 'books', exact: true }).waitFor()

    await page.getByRole('link', { name: 'Environments' }).click()
    await page.getByRole('link', { name: 'New environment' }).click()
    await page.getByLabel('Name', { exact: true }).fill('test')
    await page.getByRole('button', { name: 'Create environment' }).click()
    await page.getByText('This is needed.').waitFor()
    await page.getByLabel('Cluster agent').fill('42')
    await page.getByRole('button', { name: 'Create environment' }).click()
    await page.getByText('The driver has found everything').waitFor({ timeout: 60_000 })
    await shot(page, 'environment-ready-light')

    const repository = await createRepository(stack, 'books', 'test', ['store'])
    await page.goto('/applications/books/pipeline')
    await page.getByLabel('Argo CD Application', { exact: true }).fill('books-test')
    await page.getByLabel('Git repository').fill(repository)
    await page.getByLabel('Folder in Git').fill('test')
    await page.getByLabel('Namespace of the workloads').fill('books-test')
    await page.getByLabel('Manifest file').fill('test/store.yaml')
    await page.getByLabel('Container').fill('Not A Container')
    const seconds = page.getByLabel('Seconds between two looks at the cluster')
    await page.locator('details').filter({ has: seconds }).locator('> summary').click()
    await seconds.fill('1')
    await page.getByRole('button', { name: 'Create pipeline' }).click()
    await page.locator('[data-field="services/0/container"][aria-invalid]').waitFor()
    await shot(page, 'new-pipeline-wrong-light')
    await page.getByLabel('Container').fill('store')
    await page.getByRole('button', { name: 'Create pipeline' }).click()
    await page.getByRole('heading', { name: 'books', exact: true }).waitFor()
    await page.getByRole('listitem').filter({ hasText: 'gates at' }).getByText('Ready').waitFor({ timeout: 60_000 })

    await page.goto('/')
    await page.getByText('A version of every service').waitFor()
    await shot(page, 'welcome-almost-light')
    await pushImage(stack, 'books/store', '1.0')
    await page.getByRole('button', { name: 'Roll out books' }).click({ timeout: 60_000 })
    await page.getByRole('dialog').getByRole('button', { name: 'Roll out' }).click()
    await page.locator('.page-head .chip').getByText('Completed').waitFor({ timeout: 60_000 })
    await shot(page, 'first-rollout-light')
    const { rollouts } = await graphql(stack, '{ rollouts { nodes { state } } }')
    assert.deepEqual(rollouts.nodes, [{ state: 'COMPLETED' }])
    await page.finish()
  } finally {
    await stack.stop()
  }
})
