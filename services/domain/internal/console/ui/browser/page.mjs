// A browser for the tests: Debian's Chromium, and what each test does with a page.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { chromium } from 'playwright-core'
import { until } from './stack.mjs'

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const shots = process.env.SHOTS ?? ''

export async function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  })
}

/** A page that fails its test when anything is refused by the policy, or thrown. */
export async function open(browser, stack, { dark = false, width = 1360, height = 900, signedIn = true, forced = false, zoom = 1, locale = 'en-GB', motion = false } = {}) {
  const context = await browser.newContext({
    baseURL: stack.console, viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', locale, timezoneId: 'UTC',
    deviceScaleFactor: zoom, forcedColors: forced ? 'active' : 'none', reducedMotion: motion ? 'no-preference' : 'reduce',
  })
  const page = await context.newPage()
  page.setDefaultTimeout(60_000) // reached only when something does not come
  const wrong = []
  page.on('pageerror', (e) => wrong.push(`thrown: ${e.message}`))
  page.on('console', (m) => {
    if (m.type() === 'error' && !/Failed to load resource/.test(m.text())) wrong.push(m.text())
  })
  page.finish = async () => {
    await context.close()
    assert.deepEqual(wrong, [])
  }
  if (signedIn) {
    await page.goto('/')
    const other = page.getByRole('button', { name: 'Sign in with a token' })
    await other.or(page.getByLabel('Token')).waitFor()
    if (await other.isVisible()) await other.click()
    await page.getByLabel('Token').fill(stack.token)
    await page.keyboard.press('Enter')
    await page.getByRole('navigation', { name: 'Main' }).waitFor()
  }
  return page
}

/** No page wider than the window, and no serious finding of axe: that is slow, and the same at every width. */
export async function check(page, name, { axeToo = true } = {}) {
  const { wide, room } = await page.evaluate(() => ({ wide: document.documentElement.scrollWidth, room: document.documentElement.clientWidth }))
  assert.ok(wide <= room, `${name}: found a page ${wide} wide in a window of ${room}`)
  if (!axeToo) return
  // Axe comes through the protocol, not through the page, whose policy would refuse it.
  await page.evaluate(axe)
  const found = await page.evaluate(async () => {
    const { violations } = await globalThis.axe.run(document, { resultTypes: ['violations'] })
    return violations
      .filter((v) => v.impact === 'serious' || v.impact === 'critical')
      .map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => `${n.target.join(' ')} (${n.any.map((a) => a.message).join('; ')})`).join(' | ')}`)
  })
  assert.deepEqual(found, [], `axe: ${name}`)
}

export async function shot(page, name, { fullPage = true } = {}) {
  if (shots) await page.screenshot({ path: join(shots, `${name}.png`), fullPage })
}

/** Presses Tab until the element has the focus. */
export async function tabTo(page, locator) {
  await locator.waitFor()
  await until('the focus', async () => {
    if (await locator.evaluate((e) => e === document.activeElement)) return true
    await page.keyboard.press('Tab')
    return false
  })
}
