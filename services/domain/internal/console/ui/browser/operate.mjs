// Tests of what operators do beside rollouts, in a real browser against a real stack: signing in at an identity provider, members
// and tokens, sources, workflows, pipelines. `make console-test` runs them; SHOTS=DIR keeps pictures.
import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { identityProvider } from './idp.mjs'
import { check, launch, open, shot } from './page.mjs'
import { start, tell } from './stack.mjs'

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
  await tell(story)
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

test('signing in at an identity provider, by keyboard, to the page that was asked for; who has no access is told so', async () => {
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
