// What a page of a large organization costs, in numbers that are the same on any machine: requests, bytes, elements, rows that
// are drawn again. How long it takes is measured by scale.mjs. `make console-test` runs these.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { arrived, checkFirstPage, count, crowd, drawn, limits, sizes, storm } from './crowd.mjs'
import { check, open, shot } from './page.mjs'
import { until } from './stack.mjs'

let place
before(async () => {
  place = await crowd(1_000)
})
after(() => place?.end())

/** A page of the matrix with everything on it, and nothing under way. */
async function matrix() {
  const page = await open(place.browser, place.stack)
  const counts = await count(page)
  const found = await checkFirstPage(page, counts)
  counts.requests.length = 0
  return { page, counts, found }
}

test('the first page asks six things, and is as large as its twenty rows', async (t) => {
  const { page, found } = await matrix()
  t.diagnostic(JSON.stringify(found))
  await page.finish()
})

test('fifty events a second all arrive, and what they change is drawn, with two requests each half second at most', async (t) => {
  const opened = Date.now()
  const { page, counts } = await matrix()
  const rows = await page.locator('.matrix tbody tr').elementHandles()
  const begun = Date.now()
  await place.psql('-c', storm(4))
  await arrived(page, 200)
  await drawn(page, place.stack)
  const beats = Math.ceil((Date.now() - begun) / 500)
  const asked = counts.requests.reduce((sum, name) => ({ ...sum, [name]: (sum[name] ?? 0) + 1 }), {})
  assert.equal(await page.evaluate(() => globalThis.counted.rows.size), 200)
  const follows = ['Inbox', 'Where']
  for (const name of follows) assert.ok(asked[name] <= beats + 1, `${name}: found ${asked[name]} requests in ${beats} half seconds`)
  // On a slow machine the periodic queries for what the journal does not report run as well, one every fifteen seconds since the page loaded.
  const rounds = Math.ceil((Date.now() - opened) / 15_000)
  for (const [name, n] of Object.entries(asked)) assert.ok(follows.includes(name) || n <= rounds, `${name}: found ${n} requests in ${rounds} rounds of fifteen seconds`)
  // The rows are still the same elements: nothing was thrown away to be made again.
  for (const row of rows) assert.ok(await row.evaluate((e) => e.isConnected), 'a row was made anew')
  const { elements } = await sizes(page)
  assert.ok(elements <= limits.elements, `found ${elements} elements`)
  t.diagnostic(`200 events: ${JSON.stringify(asked)} in ${beats} half seconds, ${elements} elements`)
  await page.finish()
})

test('an event about one application draws its row again, and no other', async () => {
  const { page } = await matrix()
  const name = await page.locator('.matrix tbody tr:nth-child(10) th a').first().textContent()
  const id = Number(name.split('-')[1])
  await page.evaluate(() => {
    globalThis.touched = new Set()
    // Relative times change by themselves.
    new MutationObserver((all) => {
      for (const { target } of all) {
        const at = target.nodeType === Node.TEXT_NODE ? target.parentElement : target
        if (at?.tagName !== 'TIME') globalThis.touched.add(at?.closest('tr')?.querySelector('th a')?.textContent ?? at?.tagName)
      }
    }).observe(document.querySelector('.matrix tbody'), { childList: true, subtree: true, characterData: true, attributes: true })
  })
  await place.psql('-c', `UPDATE cd_service_environment_healths SET health = 'degraded' WHERE organization_id = 1 AND service_id = ${2 * id};
    SET session_replication_role = replica;
    INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, gate_id, principal_type)
    SELECT 1, min(id), 'in_progress', 'in_progress', 'reach_gate', 'environment/25', 'system' FROM cd_rollouts WHERE organization_id = 1 AND application_id = ${id}`)
  await page.locator('.matrix tbody tr:nth-child(10)').getByText('Degraded').first().waitFor()
  await drawn(page, place.stack)
  assert.deepEqual(await page.evaluate(() => [...globalThis.touched]), [name])
  await page.finish()
})

test('a task of 250 ms while events come is seen to be a long one', async () => {
  const { page } = await matrix()
  const storming = place.psql('-c', storm(1))
  await page.evaluate(() => setTimeout(() => {
    const end = performance.now() + 250
    while (performance.now() < end);
  }))
  await storming
  await until('the long task', () => page.evaluate(() => globalThis.counted.long.some((ms) => ms >= 245)))
  await page.finish()
})

test('a rollout of 200 services, thirty environments, long names, names from right to left', async (t) => {
  await place.psql('-f', fileURLToPath(new URL('giant.sql', import.meta.url)))
  for (const look of [{ name: 'light' }, { name: '320', width: 320, height: 700 }]) {
    const page = await open(place.browser, place.stack, look)
    for (const [name, address] of [
      ['200-services', '/rollouts/rollout_900001'], ['30-environments', '/rollouts/rollout_900002'], ['giant-cells', '/?q=goes-everywhere'], ['giant-name', '/?q=payments-and'],
      ['giant-application', '/applications/payments-and-settlement-of-everything-that-is-sold-anywhere-xxx'], ['giant-sets', '/applications/payments-and-settlement-of-everything-that-is-sold-anywhere-xxx/sets'],
      ['giant-environment', '/environments/region-02-of-the-north-western-continent-zzzzzzzzzzzzzzzzzzzzzz'], ['giant-rollouts', '/rollouts?application=goes-everywhere'],
    ]) {
      await page.goto(address)
      await page.locator('main h1').waitFor()
      await until('everything on the page', async () => (await page.locator('main .loading').count()) === 0)
      const { elements } = await sizes(page)
      assert.ok(elements <= limits.elements, `${name}: found ${elements} elements, expected ${limits.elements} at most`)
      t.diagnostic(`${name} ${look.name}: ${elements} elements`)
      await check(page, `${name} ${look.name}`, { axeToo: look.name === 'light' })
      await shot(page, `${name}-${look.name}`, { fullPage: false })
    }
    await page.finish()
  }
})

test('of 200 services those are drawn that a person asks for; a refresh asks for the end of the journal, not for all of it', async () => {
  const page = await open(place.browser, place.stack)
  const asked = []
  page.on('request', (r) => r.url().endsWith('/graphql') && /^(RolloutPage|MoreJournal)$/.test(r.postDataJSON().operationName) && asked.push(r.postDataJSON()))
  await page.goto('/rollouts/rollout_900001')
  await page.getByRole('heading', { name: 'Why is it waiting?' }).waitFor()
  await page.getByText(/and 96 others are on their way to 10/).waitFor()
  const lane = page.getByRole('region', { name: 'Services and gates in region-02' })
  assert.equal(await lane.locator('tbody tr').count(), 20)
  const others = lane.getByRole('button', { name: 'Show the other 180 services' })
  await others.focus()
  await page.keyboard.press('Enter')
  assert.equal(await lane.locator('tbody tr').count(), 200)
  const journal = page.getByLabel('Journal, newest first')
  assert.equal(await journal.locator('.entry').count(), 100)
  await journal.getByRole('button', { name: /earlier rows/ }).click()
  assert.ok((await journal.locator('.entry').count()) > 500)
  const whole = asked.length
  assert.ok(whole > 5, `found ${whole} pages of the journal`)
  asked.length = 0
  await place.psql('-c', `SET session_replication_role = replica; INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, principal_type, principal_id, reason)
    VALUES (1, 900001, 'in_progress', 'in_progress', 'pause', 'user', 1, 'רגע אחד')`)
  await journal.getByText('רגע אחד').waitFor()
  const { after } = asked[0].variables
  assert.ok(after, 'the journal was asked for from its beginning')
  // Two pages a refresh at most: whole ones stay.
  assert.ok(asked.filter((a) => a.operationName === 'MoreJournal').length <= asked.filter((a) => a.operationName === 'RolloutPage').length * 2)
  await page.finish()
})
