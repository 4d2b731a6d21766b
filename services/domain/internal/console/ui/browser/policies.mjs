// Tests of policies and of where images come from, in a real browser against a real stack: a set that is tried out, enforced and switched
// off, what it decided about passages, the facts of a version, and where a component is live. `make console-test` runs them; SHOTS=DIR keeps
// pictures.
import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { check, launch, open, shot, tabTo } from './page.mjs'
import { attest, newKey } from './signing.mjs'
import { graphql, pause, playDemo, rollTo, start, until } from './stack.mjs'

let browser
let dir
let key
let stack

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'console-'))
  await chmod(dir, 0o755) // PostgreSQL runs as an account of its own
  browser = await launch()
  const story = join(dir, 'story')
  await playDemo(story)
  key = newKey()
  await writeFile(join(dir, 'release.pub'), key.pem)
  stack = await start(story, {
    'registry.signers': JSON.stringify([{ name: 'release', public_key: `file:${join(dir, 'release.pub')}`, build_level: 3 }]),
  })
})

after(async () => {
  await browser?.close()
  await stack?.stop()
  await rm(dir, { recursive: true, force: true, maxRetries: 5 })
})

/** The set that is live in an environment, and its versions. */
async function live(environment) {
  const { application } = await graphql(
    stack, '{ application(name: "shop") { environments { environment { name } live { name entries { service { name } version { id name digest reference } } } } } }',
  )
  return application.environments.find((e) => e.environment.name === environment).live
}

/** Ends a rollout, so that another one can begin. */
async function cancel(id) {
  const answer = await graphql(stack, 'mutation($i: CancelRolloutInput!) { cancelRollout(input: $i) { errors { message } } }', { i: { rolloutId: id, reason: 'the next one' } })
  assert.deepEqual(answer.cancelRollout.errors, [])
  await until('the end of the rollout', async () => {
    const { rollout } = await graphql(stack, 'query($id: ID!) { rollout(id: $id) { state } }', { id })
    return ['CANCELLED', 'COMPLETED', 'FAILED'].includes(rollout.state)
  })
}

/** Changes the state of a set on its page, by keyboard. */
async function setState(page, state, reason) {
  await tabTo(page, page.getByRole('button', { name: 'Change the state' }))
  await page.keyboard.press('Enter')
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('State').selectOption(state)
  await dialog.getByLabel(/^Reason/).fill(reason)
  await dialog.getByRole('button', { name: 'Save' }).click()
  await dialog.waitFor({ state: 'detached' })
}

const freeze = `@id("all") permit (principal, action, resource);
@id("staging") @message("staging is being measured")
forbid (principal, action == Action::"environment.enter", resource == Environment::"staging");
`

test('a set that is tried out decides nothing and says what it would have; enforced it stops a passage, which shows why; switched off it lets it on', async () => {
  const put = await graphql(stack, 'mutation($i: PutPolicySetInput!) { putPolicySet(input: $i) { errors { message } } }', {
    i: { name: 'measuring', text: freeze, mode: 'DRY_RUN', reason: 'to see whom it would stop' },
  })
  assert.deepEqual(put.putPolicySet.errors, [])
  const next = async () => ((await live('staging')).name === 'set-3' ? 'set-1' : 'set-3') // what is live already enters nothing
  const tried = await rollTo(stack, await next())
  const page = await open(browser, stack)
  await page.goto(`/rollouts/${tried}`)
  const decided = page.getByRole('button', { name: /^What policies decided: .*staging/ }).last() // the newest is first, and it enters first
  const silent = page.getByRole('button', { name: /^Show .* that needed no approval$/ })
  await silent.or(decided).first().waitFor()
  if (!(await decided.isVisible())) await silent.click()
  await tabTo(page, decided)
  await page.keyboard.press('Enter')
  const decision = page.locator('[data-decision]')
  await decision.getByText('with the policies that are tried out:').waitFor()
  const rulings = decision.getByRole('list', { name: 'Policies' })
  await rulings.getByRole('listitem').filter({ hasText: 'measuring/staging' }).filter({ hasText: 'it does not count' }).waitFor()
  await shot(page, 'policy-tried-at-passage-light')
  await check(page, 'a passage with policies that are tried out')
  await page.locator('tr[data-gate]').filter({ hasText: 'staging' }).getByText('Granted').first().waitFor()
  await cancel(tried)

  await page.goto('/policies/measuring')
  await page.getByText('Dry run').first().waitFor()
  await setState(page, 'ENFORCE', 'it stops whom it should')
  await page.getByText('Enforced').first().waitFor()
  const stopped = await rollTo(stack, await next())
  await page.goto(`/rollouts/${stopped}`)
  await decided.waitFor()
  await decided.click()
  const denial = rulings.getByRole('listitem').filter({ hasText: 'measuring/staging' })
  await denial.filter({ hasText: 'staging is being measured' }).getByText('Denied').waitFor()
  assert.equal(await denial.getByText('it does not count').count(), 0)
  await decision.getByText('The values that they saw').click()
  const seen = decision.locator('dl div').filter({ hasText: 'environment.name' })
  assert.match(await seen.first().textContent(), /staging/)
  await shot(page, 'policy-denied-at-passage-light')
  await check(page, 'a passage that policies deny')

  await page.goto('/policies/measuring')
  await setState(page, 'OFF', 'it is measured')
  await page.getByText('Off', { exact: true }).first().waitFor()
  // A rollout keeps the policies that it was created with, so it is the next one that is let on.
  await cancel(stopped)
  const free = await rollTo(stack, await next())
  await page.goto(`/rollouts/${free}`)
  const entered = page.locator('tr[data-gate]').filter({ hasText: 'staging' }).getByText('Granted').first()
  await silent.or(entered).first().waitFor()
  if (!(await entered.isVisible())) await silent.click()
  await entered.waitFor()
  assert.equal(await decided.count(), 0)
  await cancel(free)
  const { policySetVersions } = await graphql(stack, '{ policySetVersions(name: "measuring") { version mode reason } }')
  assert.deepEqual(policySetVersions.map((v) => v.mode), ['OFF', 'ENFORCE', 'DRY_RUN'])
  await page.finish()
})

test('agents, drivers and services are offered by name where policies name them', async () => {
  const { policyVocabulary: { names } } = await graphql(stack, '{ policyVocabulary { names { agents drivers services } } }')
  assert.ok(names.agents.length > 0 && names.drivers.length > 0 && names.services.includes('api'), `found ${JSON.stringify(names)}`)
  const page = await open(browser, stack)
  await page.goto('/new-policy-set')
  const editor = page.getByRole('textbox', { name: 'Policies, in Cedar' })
  await editor.focus()
  await page.keyboard.type('@id("all") permit (principal, action, resource)\nwhen { ')
  const take = async (before, name) => {
    await page.keyboard.type(before + name.slice(0, 1))
    await page.getByRole('option', { name: new RegExp(`^${name}`) }).waitFor()
    await pause(100) // the list takes no key at first, so that none is caught that was meant for the text
    const list = page.getByRole('option')
    while (!(await list.and(page.locator('[aria-selected=true]')).first().textContent()).startsWith(name)) await page.keyboard.press('ArrowDown')
    await page.keyboard.press('Enter')
    assert.ok((await editor.textContent()).includes(before + name), await editor.textContent())
    await page.keyboard.press('ArrowRight') // past the quote that the editor has closed
  }
  await take('resource.agents.contains(Agent::"', names.agents[0])
  await page.keyboard.type(') || resource has driver && ')
  await take('resource.driver == Driver::"', names.drivers[0])
  await page.keyboard.type(' || ')
  await take('context.versionSet.services.contains("', 'api')
  await shot(page, 'policy-names-light')
  await check(page, 'names in a policy')
  page.on('dialog', (d) => d.accept())
  await page.finish()
})

test('what is attached to an image is verified and shown with its evidence, also what was refused; its components are found where it is live', async () => {
  const set = await live('production')
  const { version } = set.entries.find((e) => e.service.name === 'api')
  const repository = version.reference.replace(/^[^/]+\//, '').replace(/@.*$/, '')
  const page = await open(browser, stack)
  await page.goto(`/versions/${version.id}`)
  await page.getByRole('heading', { name: version.name }).waitFor()
  await attest(stack, repository, version.digest, key, 'https://sigstore.dev/cosign/sign/v1', {})
  await attest(stack, repository, version.digest, key, 'https://slsa.dev/provenance/v1', {
    buildDefinition: { buildType: 'https://example.com/build/v1', resolvedDependencies: [{ uri: 'git+https://git.example.com/shop/api', digest: { gitCommit: 'a'.repeat(40) } }] },
    runDetails: { builder: { id: 'https://ci.example.com/builder' } },
  })
  await attest(stack, repository, version.digest, key, 'https://cyclonedx.org/bom', {
    bomFormat: 'CycloneDX', specVersion: '1.5', version: 1, components: [{ name: 'openssl', version: '3.0.1', purl: 'pkg:deb/openssl@3.0.1' }],
  })
  await attest(stack, repository, version.digest, key, 'https://in-toto.io/attestation/vulns/v0.1', { scanner: { uri: 'pkg:example/scanner', result: [] } }, { spoiled: true })
  const again = page.getByRole('button', { name: 'Look up again' })
  const facts = page.getByRole('region', { name: 'Facts' })
  await until('the facts', async () => {
    await again.click()
    await page.reload()
    await page.getByRole('heading', { name: version.name }).waitFor()
    return facts.getByText('https://ci.example.com/builder').isVisible()
  })
  const fact = (name) => facts.locator('dl div').filter({ has: page.getByText(name, { exact: true }) }).locator('dd')
  assert.equal(await fact('Signed by').textContent(), 'release')
  assert.equal(await fact('SLSA level').textContent(), '3')
  assert.equal(await fact('Built from').textContent(), `https://git.example.com/shop/api at ${'a'.repeat(40)}`)
  assert.match(await fact('SBOM').textContent(), /1 components$/)
  assert.equal(await fact('Critical vulnerabilities').textContent(), 'not known') // what was refused states nothing
  const evidence = page.getByRole('region', { name: 'Evidence' }).getByRole('table')
  assert.equal(await evidence.getByText('Verified').count(), 3)
  assert.equal(await evidence.getByRole('row').filter({ hasText: 'Refused' }).filter({ hasText: 'nobody who is trusted' }).count(), 1)
  await shot(page, 'version-facts-light')
  await check(page, 'the facts of a version')

  await page.goto('/find')
  const words = page.getByLabel('Component, package URL or digest')
  await tabTo(page, words)
  await page.keyboard.type('openssl@3.0.1')
  await page.keyboard.press('Enter')
  const places = page.getByRole('region', { name: 'Where it is live' })
  const row = places.getByRole('row').filter({ hasText: 'production' })
  await row.filter({ hasText: 'openssl 3.0.1' }).waitFor()
  assert.match(page.url(), /\?q=openssl%403\.0\.1$/)
  await shot(page, 'find-component-light')
  await check(page, 'where a component is live')
  await words.fill('openssl@1.0')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'It is live nowhere' }).waitFor()
  await words.fill(version.digest)
  await page.keyboard.press('Enter')
  await row.filter({ hasText: 'the image itself' }).getByRole('link', { name: 'shop' }).waitFor()
  await page.finish()
})

for (const look of [{ name: 'dark', dark: true }, { name: '390', width: 390, height: 844 }]) {
  test(`the facts of a version and where a component is live, ${look.name}`, async () => {
    const page = await open(browser, stack, look)
    const { version } = (await live('production')).entries.find((e) => e.service.name === 'api')
    await page.goto(`/versions/${version.id}`)
    await page.getByRole('region', { name: 'Evidence' }).first().waitFor()
    await check(page, `the facts of a version ${look.name}`)
    await shot(page, `version-facts-${look.name}`)
    await page.goto('/find?q=openssl@3.0.1')
    await page.getByRole('region', { name: 'Where it is live' }).waitFor()
    await check(page, `where a component is live ${look.name}`)
    await shot(page, `find-component-${look.name}`)
    await page.finish()
  })
}
