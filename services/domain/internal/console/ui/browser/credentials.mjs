// Tests of the page of credentials, in a real browser against a real stack with a keyset: a value goes in, and is in nothing that comes back.
// `make console-test` runs them; SHOTS=DIR keeps pictures.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { check, launch, open, shot } from './page.mjs'
import { graphql, playDemo, start } from './stack.mjs'

const canary = 'kx7f3ab9-never-in-clear'

let browser
let dir
let stack

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'console-'))
  await chmod(dir, 0o755) // PostgreSQL runs as an account of its own
  browser = await launch()
  const keyset = join(dir, 'keyset.json')
  await promisify(execFile)(process.env.LOCKSTEP ?? 'lockstep', ['keyset', 'create', keyset])
  await playDemo(join(dir, 'story'))
  const reference = `file:${keyset}`
  stack = await start(join(dir, 'story'), {
    'domain.credentials.keyset_ref': reference, 'workflow.credentials.keyset_ref': reference, 'registry.credentials.keyset_ref': reference,
  })
})

after(async () => {
  await browser?.close()
  await stack?.stop()
  await rm(dir, { recursive: true, force: true, maxRetries: 5 })
})

test('D56: credentials are added, rotated and revoked, and their values are never shown', async () => {
  const page = await open(browser, stack)
  const answers = []
  page.on('response', async (r) => {
    if (r.url().endsWith('/graphql') && !r.request().headers().accept?.includes('event-stream')) answers.push(await r.text().catch(() => ''))
  })
  await page.goto('/')
  await page.getByRole('link', { name: 'Credentials' }).click()
  await page.getByText('No credentials yet').waitFor()
  await check(page, 'no credentials')
  await page.getByRole('button', { name: 'Add a credential' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Name', { exact: true }).fill('images')
  await dialog.getByLabel('URLs that it may be sent to').fill('smtp://registry.example.com/')
  await dialog.getByLabel('User name').fill('robot')
  await dialog.getByLabel('Password or token').fill(canary)
  await dialog.getByRole('button', { name: 'Add' }).click()
  await dialog.getByText(/expected https or http/).waitFor()
  await shot(page, 'credential-form-light')
  await check(page, 'the form of a credential')
  await dialog.getByLabel('URLs that it may be sent to').fill('https://registry.example.com/shop')
  await dialog.getByRole('button', { name: 'Add' }).click()
  await dialog.waitFor({ state: 'detached' })
  const row = page.getByRole('row').filter({ hasText: 'images' })
  await row.getByText('Registry: user name and password').waitFor()
  await row.getByText('version 1').waitFor()

  await page.getByRole('button', { name: 'Add a credential' }).click()
  await dialog.getByLabel('Kind').selectOption('ecr')
  await dialog.getByLabel('Name', { exact: true }).fill('ecr')
  await dialog.getByLabel('URLs that it may be sent to').fill('https://123456789012.dkr.ecr.eu-central-1.amazonaws.com/')
  await dialog.getByLabel('Access key ID').fill('AKIAIOSFODNN7EXAMPLE')
  await dialog.getByLabel('Region').fill('nowhere')
  await dialog.getByLabel('Secret access key').fill(canary)
  await dialog.getByRole('button', { name: 'Add' }).click()
  await dialog.getByText(/expected a region, such as/).waitFor()
  await dialog.getByLabel('Region').fill('eu-central-1')
  await dialog.getByRole('button', { name: 'Add' }).click()
  await dialog.waitFor({ state: 'detached' })
  await page.getByRole('row').filter({ hasText: 'Registry: Amazon ECR' }).waitFor()

  await page.getByRole('button', { name: 'Rotate images' }).click()
  await dialog.getByLabel('Password or token').fill(`${canary}-2`)
  await dialog.getByLabel('Reason').fill('quarterly')
  await dialog.getByRole('button', { name: 'Rotate' }).click()
  await dialog.waitFor({ state: 'detached' })
  await row.getByText('version 2').waitFor()
  await shot(page, 'credentials-light')
  await check(page, 'credentials')

  await page.getByRole('button', { name: 'Revoke images' }).click()
  await dialog.getByRole('button', { name: 'Revoke' }).click()
  await dialog.waitFor({ state: 'detached' })
  await row.getByText('Revoked').waitFor()
  assert.equal(await row.getByRole('button').count(), 0)
  const { credentials } = await graphql(stack, '{ credentials { name state version ecr { region } } }')
  assert.deepEqual(credentials, [
    { name: 'ecr', state: 'LIVE', version: 1, ecr: { region: 'eu-central-1' } },
    { name: 'images', state: 'REVOKED', version: 2, ecr: null },
  ])
  assert.ok(answers.length > 0 && answers.every((text) => !text.includes(canary)), 'an answer has the value')
  assert.ok(!(await page.content()).includes(canary), 'the page has the value')
  await page.finish()
})
