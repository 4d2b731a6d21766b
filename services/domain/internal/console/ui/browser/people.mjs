// Tests of how people are notified and answer, in a real browser against a real stack: a message that its channel refuses, the link of a
// message, a chat account, subscriptions of one's own, and the addresses of deployments. A server of the test is the chat and the webhook.
// `make console-test` runs them; SHOTS=DIR keeps pictures.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { check, launch, open, shot } from './page.mjs'
import { change, graphql, playDemo, rollTo, rolloutState, start, until } from './stack.mjs'

const commandToken = 'xr3j5x3p4pfk7kk6ck7b4e6ghh'

let browser
let chat
let dir
let stack

/** A chat server and a receiver of webhooks. It keeps what it receives, and refuses what begins with a path in refused. */
async function chatServer() {
  const received = []
  const refused = new Set()
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const json = (status, value) => response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(value))
    if (refused.has(request.url)) return json(400, { message: 'the payload is not accepted' })
    received.push({ path: request.url, body: body && JSON.parse(body) })
    if (request.url === '/api/v4/users/me') return json(200, { id: 'bot1' })
    if (request.url === '/api/v4/channels/direct') return json(201, { id: 'direct1' })
    json(request.method === 'POST' ? 201 : 200, { id: `post${received.length}` })
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${server.address().port}`, received, refused,
    /** The bodies that came to a path. */
    at: (path) => received.filter((r) => r.path === path).map((r) => r.body),
    stop: () => new Promise((resolve) => { server.close(resolve); server.closeAllConnections() }),
  }
}

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'console-'))
  await chmod(dir, 0o755) // PostgreSQL runs as an account of its own
  browser = await launch()
  chat = await chatServer()
  const keyset = join(dir, 'keyset.json')
  await promisify(execFile)(process.env.LOCKSTEP ?? 'lockstep', ['keyset', 'create', keyset])
  await writeFile(join(dir, 'bot'), 'the-token-of-the-bot')
  const story = join(dir, 'story')
  await playDemo(story)
  const known = await start(story)
  await known.stop() // its address is kept, and only now known
  stack = await start(story, {
    'domain.public_url': known.console.replace(/\/$/, ''), 'domain.credentials.keyset_ref': `file:${keyset}`, 'workflow.credentials.keyset_ref': `file:${keyset}`,
    'workflow.http_allow_networks': JSON.stringify(['127.0.0.1']),
    'workflow.http_credentials': JSON.stringify([{ name: 'chat-bot', url_prefixes: [`${chat.url}/`], ref: `file:${join(dir, 'bot')}`, organizations: [1] }]),
  })
  await change(stack, 'createCredential', 'CreateCredentialInput', {
    name: 'chat-command', kind: 'HTTP', urlPrefixes: [`${chat.url}/`], value: commandToken,
  })
})

after(async () => {
  await browser?.close()
  await stack?.stop()
  await chat?.stop()
  await rm(dir, { recursive: true, force: true, maxRetries: 5 })
})

const channel = (name, kind, config) => change(stack, 'putNotificationChannel', 'PutNotificationChannelInput', { name, kind, config })
const route = (name, to, config) => change(stack, 'putNotificationRoute', 'PutNotificationRouteInput', { name, channel: to, config })

/** Ends a rollout, so that another one can begin. */
async function cancel(id) {
  await change(stack, 'cancelRollout', 'CancelRolloutInput', { rolloutId: id, reason: 'the next one' })
  await until('the end of the rollout', async () => ['CANCELLED', 'COMPLETED', 'FAILED'].includes((await rolloutState(stack, id)).state))
}

test('a message that its channel refuses is shown with the reason, and sent again once the channel takes it', async () => {
  await channel('ops', 'WEBHOOK', { url: `${chat.url}/hook` })
  await route('ops', 'ops', { events: ['rollout_failed'] })
  chat.refused.add('/hook')
  const page = await open(browser, stack)
  await page.goto('/notifications')
  await page.getByRole('button', { name: 'Test ops' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Send a test' }).click()
  const row = page.getByRole('row', { name: /Test of route ops/ })
  await row.getByText('Failed', { exact: true }).waitFor()
  await row.getByText(/the channel answered with status 400/).waitFor()
  await check(page, 'a message that failed')
  await shot(page, 'message-failed-light')
  chat.refused.clear()
  await row.getByRole('button', { name: /^Send again: message \d+$/ }).click()
  await row.getByText('Sent', { exact: true }).waitFor()
  assert.equal(await row.getByRole('button').count(), 0)
  const [sent, ...more] = chat.at('/hook')
  assert.deepEqual(more, [])
  assert.equal(sent.data.notifications[0].event, 'test')
  const dark = await open(browser, stack, { dark: true, width: 390, height: 844 })
  await dark.goto('/notifications')
  await dark.getByRole('row', { name: /Test of route ops/ }).waitFor()
  await check(dark, 'notifications dark 390')
  await dark.finish()
  await page.finish()
})

test('the link of a message leads to its question after signing in, once, and decides nothing; a forged one is refused', async () => {
  await channel('team', 'MATTERMOST', { url: chat.url, account: 'chat-bot', target: 'C1' })
  await route('questions', 'team', { events: ['approval_needed'] })
  const id = await rollTo(stack, 'set-1')
  await until('the question', async () => (await rolloutState(stack, id)).openGates.length > 0, 180_000)
  const link = await until('the question in the chat', () =>
    /\/answer#[\w-]+/.exec(JSON.stringify(chat.at('/api/v4/posts')))?.[0])
  const before = await rolloutState(stack, id)
  const page = await open(browser, stack, { signedIn: false })
  await page.goto(link)
  await page.getByLabel('Token').fill(stack.token)
  await page.keyboard.press('Enter')
  await page.waitForURL(`**/rollouts/${id}`)
  await page.getByRole('button', { name: /^Approve/ }).first().waitFor()
  assert.deepEqual(await rolloutState(stack, id), before)
  const { notificationMessages } = await graphql(stack, '{ notificationMessages(first: 5) { openings { member } } }')
  assert.equal(notificationMessages.flatMap((m) => m.openings).length, 1)
  await page.goto('/')
  await page.goto(link)
  await page.getByRole('heading', { name: 'This link was opened before' }).waitFor()
  await check(page, 'a link that was opened before')
  await shot(page, 'answer-used-light')
  await page.getByRole('link', { name: 'Go to the question' }).click()
  await page.waitForURL(`**/rollouts/${id}`)
  await page.goto('/')
  await page.goto(`${link.slice(0, -4)}AAAA`)
  await page.getByRole('alert').waitFor()
  await check(page, 'a forged link')
  await shot(page, 'answer-forged-light')
  assert.deepEqual(await rolloutState(stack, id), before)
  await cancel(id)
  await page.goto('/')
  await page.goto(link) // used and over
  await page.getByRole('heading', { name: /This link was opened before|This question is not open any more/ }).waitFor()
  await page.finish()
})

let commands = 0

/** A slash command, as the chat server sends it. */
async function command(text) {
  const trigger = Buffer.from(`id${++commands}:u7:${Date.now()}:c2ln`).toString('base64')
  const response = await fetch(new URL('/chat/organization_1/direct-commands/command', stack.console), {
    method: 'POST', headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({
      token: commandToken, team_id: 't', team_domain: 'd', channel_id: 'c', channel_name: 'town-square', user_id: 'u7', user_name: 'bob', command: '/lockstep', text,
      trigger_id: trigger, response_url: `${chat.url}/hooks/x`,
    }),
  })
  assert.equal(response.status, 200)
  return (await response.json()).text
}

test('a chat account is linked by its link, after looking at whose it is, and answers then; the link works once', async () => {
  await channel('direct-commands', 'MATTERMOST', { url: chat.url, account: 'chat-bot', target: 'C2', commands: 'chat-command' })
  await route('nothing', 'direct-commands', { events: ['drift'] })
  const link = /\/chat-account#[\w-]+/.exec(await command('status'))?.[0]
  assert.ok(link, 'found no link in the answer to an unknown user')
  const page = await open(browser, stack)
  await page.goto(link)
  await page.getByRole('heading', { name: 'Link a chat account' }).waitFor()
  await page.getByText(/bob \(u7\) in Mattermost .* your own account\?/).waitFor()
  await check(page, 'a chat account to link')
  await shot(page, 'chat-account-light')
  assert.match(await command('status'), /not linked/) // nothing was linked by looking
  await page.getByRole('button', { name: 'It is mine: link it' }).click()
  await page.getByRole('heading', { name: 'Chat account linked' }).waitFor()
  await check(page, 'a chat account that was linked')
  assert.doesNotMatch(await command('status'), /not linked/)
  await page.goto('/')
  await page.goto(link)
  await page.getByText('The chat account cannot be shown').waitFor()
  await shot(page, 'chat-account-used-light')
  await page.goto('/notifications')
  await page.getByRole('row', { name: /bob mattermost/ }).waitFor()
  await page.finish()
})

test('a member subscribes, is sent what happens in the own direct channel, sends again what failed there, and ends it', async () => {
  await channel('direct', 'MATTERMOST', { url: chat.url, account: 'chat-bot', personal: true })
  const page = await open(browser, stack)
  await page.goto('/my-notifications')
  await page.getByRole('listitem').filter({ hasText: /direct.*bob/ }).waitFor()
  await page.getByText('Nothing is sent to you.').waitFor()
  await page.getByRole('button', { name: 'Subscribe' }).click()
  await page.getByLabel('Name').fill('asked')
  await check(page, 'a subscription')
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
  await page.getByRole('row', { name: /asked/ }).waitFor()
  const id = await rollTo(stack, 'set-1')
  const row = page.getByRole('region', { name: 'Sent to you' }).getByRole('row', { name: /shop: rollout to set-1/ })
  await until('the message', async () => {
    await page.reload()
    await page.getByRole('heading', { name: 'Sent to you' }).waitFor()
    return (await row.count()) > 0
  })
  await row.getByText('Sent', { exact: true }).first().waitFor()
  assert.ok(chat.at('/api/v4/posts').some((post) => post.channel_id === 'direct1'), 'found no post in the direct channel')
  chat.refused.add('/api/v4/channels/direct')
  await cancel(id)
  const failed = page.getByRole('region', { name: 'Sent to you' }).getByRole('row').filter({ hasText: 'Failed' })
  await until('the failure', async () => {
    await page.reload()
    await page.getByRole('heading', { name: 'Sent to you' }).waitFor()
    return (await failed.count()) > 0
  })
  await failed.first().getByText(/status 400/).waitFor()
  await check(page, 'my notifications')
  await shot(page, 'my-notifications-light')
  chat.refused.clear()
  const again = failed.getByRole('button', { name: /^Send again: message \d+$/ })
  await until('the messages that were sent again', async () => {
    if ((await again.count()) > 0) await again.first().click()
    await page.reload()
    await page.getByRole('heading', { name: 'Sent to you' }).waitFor()
    return (await failed.count()) === 0
  })
  await page.getByRole('button', { name: 'Remove asked' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click()
  await page.getByText('Nothing is sent to you.').waitFor()
  await page.finish()
})

test('the addresses of an application are saved with its publishing; a wrong one is at its field', async () => {
  const page = await open(browser, stack)
  await page.goto('/forges/publishing')
  await page.getByRole('button', { name: 'Publish an application' }).click()
  await page.getByRole('textbox', { name: 'Application' }).fill('shop')
  const addresses = page.getByRole('textbox', { name: 'Addresses' })
  await addresses.fill('production=ftp://shop.example.com')
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
  await page.getByRole('dialog').getByText(/expected .*https?/).waitFor()
  assert.match(await page.locator(`[id="${await addresses.getAttribute('aria-describedby')}"]`).innerText(), /https?/)
  await check(page, 'a wrong address')
  await shot(page, 'addresses-wrong-light')
  await addresses.fill('production=https://shop.example.com staging=https://staging.example.com/shop?a=b')
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  const { forgeMirrors } = await graphql(stack, '{ forgeMirrors { application addresses { environment url } } }')
  assert.deepEqual(forgeMirrors, [{
    application: 'shop',
    addresses: [{ environment: 'production', url: 'https://shop.example.com' }, { environment: 'staging', url: 'https://staging.example.com/shop?a=b' }],
  }])
  await page.getByRole('button', { name: 'Change the publishing of shop' }).click()
  assert.equal(await addresses.inputValue(), 'production=https://shop.example.com staging=https://staging.example.com/shop?a=b')
  await addresses.fill('')
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  const after = await graphql(stack, '{ forgeMirrors { addresses { environment } } }')
  assert.deepEqual(after.forgeMirrors, [{ addresses: [] }])
  await page.finish()
})
