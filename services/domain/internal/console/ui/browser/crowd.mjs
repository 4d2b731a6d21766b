// A stack with a large organization (tools/bench/domain/seed.sql), and what is counted of a page that shows it: requests, bytes, elements,
// the rows of the journal that come, the rows of the matrix that change. All of that is exact, whatever the machine does beside it.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { launch } from './page.mjs'
import { graphql, start, until } from './stack.mjs'

const run = promisify(execFile)
const seed = fileURLToPath(new URL('../../../../../../tools/bench/domain/seed.sql', import.meta.url))

/** A stack with so many applications, a browser, and psql at its tables; end() ends them. */
export async function crowd(applications) {
  const dir = await mkdtemp(join(tmpdir(), 'console-crowd-'))
  await chmod(dir, 0o755) // PostgreSQL runs as an account of its own
  const stack = await start(dir)
  const options = `-c search_path=domain -c bench.applications=${applications} -c bench.environments=50 -c bench.rollouts=${2 * applications} -c bench.active=${applications / 50} -c bench.asking=${Math.min(30, applications / 50)}`
  const psql = (...args) =>
    run('psql', ['-qX', '-v', 'ON_ERROR_STOP=1', ...args, stack.database], { env: { ...process.env, PGOPTIONS: options }, maxBuffer: 1 << 24 })
  await psql('-f', seed)
  await psql('-c', 'ANALYZE')
  const browser = await launch()
  const end = async () => {
    await browser.close()
    await stack.stop()
    await rm(dir, { recursive: true, force: true, maxRetries: 5 })
  }
  return { stack, browser, psql, end }
}

/** In the page, before its own scripts: counts from now on. */
function counting() {
  if (!navigator.locks) return // about:blank
  globalThis.counted = { rows: new Set(), long: [] }
  // Every row that the stream brings is sent to the other tabs; a listener in the same page receives it as they do.
  const request = navigator.locks.request.bind(navigator.locks)
  navigator.locks.request = (name, ...rest) => {
    if (name.startsWith('lockstep-live-') && !globalThis.counted.channel) {
      const channel = new BroadcastChannel(name)
      globalThis.counted.channel = channel
      channel.onmessage = ({ data }) => data.kind === 'rows' && data.rows.forEach((r) => globalThis.counted.rows.add(r.cursor))
    }
    return request(name, ...rest)
  }
  new PerformanceObserver((list) => globalThis.counted.long.push(...list.getEntries().map((e) => e.duration))).observe({ type: 'longtask' })
}

/** The names of what a page asks of the server, the stream left out, and how much of it is answered. */
export async function count(page) {
  const counts = { requests: [], answered: 0 }
  const counted = (r) => r.url().endsWith('/graphql') && r.headers().accept !== 'text/event-stream'
  page.on('request', (r) => counted(r) && counts.requests.push(r.postDataJSON().operationName))
  page.on('requestfinished', (r) => counted(r) && counts.answered++)
  await page.addInitScript(counting)
  return counts
}

/** The compressed bytes of JavaScript that the page has loaded, its elements, and those of its matrix by row. */
export function sizes(page) {
  return page.evaluate(() => ({
    script: performance.getEntriesByType('resource').filter((r) => r.name.endsWith('.js')).reduce((sum, r) => sum + r.encodedBodySize, 0),
    elements: document.querySelectorAll('*').length,
    rows: document.querySelectorAll('.matrix tbody tr').length,
  }))
}

export const limits = {
  /** Bytes of compressed JavaScript on first load, which is what the console has promised. */
  script: 300_000,
  /** Rows of a page of the matrix, and elements: ten cells a row. */
  rows: 20,
  elements: 6_000,
  /** What the first page asks: who it is for, where the journal stands, rows and columns, and what waits, and what is frozen. */
  requests: ['Columns', 'Freezes', 'Inbox', 'JournalCursor', 'Viewer', 'Where'],
}

/** The first page costs what it may, however many applications there are. */
export async function checkFirstPage(page, counts) {
  await page.goto('about:blank') // what a page before was still asking for is no part of it
  Object.assign(counts, { requests: [], answered: 0 })
  const begun = Date.now()
  await page.goto('/')
  await page.locator('.matrix tbody tr').first().waitFor()
  await until('an answer to everything', () => counts.requests.length >= limits.requests.length && counts.answered === counts.requests.length)
  const found = await sizes(page)
  assert.equal(found.rows, limits.rows)
  assert.ok(found.script > 0 && found.script <= limits.script, `found ${found.script} bytes of JavaScript, expected ${limits.script} at most`)
  assert.ok(found.elements <= limits.elements, `found ${found.elements} elements, expected ${limits.elements} at most`)
  // After a quarter of a minute everything is asked again, on a machine that is so slow.
  const asked = Date.now() - begun < 10_000 ? counts.requests : [...new Set(counts.requests)]
  assert.deepEqual(asked.sort(), limits.requests)
  return found
}

/** Rows of the journal about the first page's applications but the first, and health that changes with them, so many a second. */
export const storm = (seconds, each = 50) => `DO $$
DECLARE
  a int;
  begun timestamptz := clock_timestamp();
BEGIN
  FOR i IN 1..${each * seconds} LOOP
    a := 2 + i % ${limits.rows - 1};
    PERFORM set_config('session_replication_role', 'replica', true); -- the row is news to the page, and moves nothing
    INSERT INTO cd_deployment_transitions (organization_id, deployment_id, from_state, to_state, event, gate_id, principal_type)
    SELECT 1, min(d.id), 'deploying', 'deploying', 'reach_gate', 'environment/25', 'system' FROM cd_rollouts r
    JOIN cd_rollout_environments e ON e.organization_id = 1 AND e.rollout_id = r.id
    JOIN cd_deployments d ON d.organization_id = 1 AND d.rollout_environment_id = e.id
    WHERE r.organization_id = 1 AND r.application_id = a;
    PERFORM set_config('session_replication_role', 'origin', true); -- the cells follow
    UPDATE cd_service_environment_healths SET health = (ARRAY['healthy', 'progressing', 'degraded'])[1 + (array_position(ARRAY['healthy', 'progressing', 'degraded'], health) + i) % 3], since = now(), observed_at = now() WHERE organization_id = 1 AND service_id = 2 * a - 1;
    COMMIT;
    PERFORM pg_sleep(GREATEST(0, extract(epoch FROM begun + i * interval '1 second' / ${each} - clock_timestamp())));
  END LOOP;
END $$`

/** Waits until the page has read so many rows of the journal since it was opened, each once. */
export const arrived = (page, rows) => until(`${rows} rows of the journal`, async () => (await page.evaluate(() => globalThis.counted.rows.size)) >= rows)

/** Waits until every row of the first page shows the health that the server says: what has come is drawn. */
export async function drawn(page, stack) {
  await until('the page to show what the server says', async () => {
    const { matrix } = await graphql(stack, `{ matrix(first: ${limits.rows}) { nodes { application { name } cells { health } } } }`)
    const shown = await page.locator('.matrix tbody tr').evaluateAll((rows) =>
      rows.map((r) => [r.querySelector('th a').textContent, ...['Healthy', 'Progressing', 'Degraded'].map((w) => [...r.querySelectorAll('.live .chip')].filter((c) => c.textContent === w).length)].join(' ')),
    )
    const said = matrix.nodes.map((n) => [n.application.name, ...['HEALTHY', 'PROGRESSING', 'DEGRADED'].map((h) => n.cells.filter((c) => c.health === h).length)].join(' '))
    return shown.join() === said.join()
  })
}
