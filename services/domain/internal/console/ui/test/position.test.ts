// What a page has seen goes along with each request, so that no answer is older.
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { ask, forgets, hasSeen, sees } from '../src/api/client'
import type { Operation } from '../src/api/generated'

const operation = { text: '{ a }', name: 'a' } as unknown as Operation<{ a: number }, object>

let said: Array<string | null>
let answers: Array<string | undefined | Promise<string> | Error>

beforeEach(() => {
  forgets()
  said = []
  answers = []
  vi.stubGlobal('fetch', async (_: string, init: RequestInit) => {
    said.push(new Headers(init.headers).get('Lockstep-Position'))
    const next = answers.shift()
    if (next instanceof Error) throw next
    const position = await next
    return new Response('{"data":{"a":1}}', { headers: position ? { 'Lockstep-Position': position } : {} })
  })
})

afterEach(() => vi.unstubAllGlobals())

async function requests(...positions: typeof answers): Promise<Array<string | null>> {
  answers = positions
  while (answers.length > 0) await ask(operation, {}).catch(() => undefined)
  return said
}

test('a request says the newest that was seen', async () => {
  expect(await requests('0/FFFFFFFF', '1/0', '1/0', 'A/0', 'A/0')).toEqual(['now', '0/FFFFFFFF', '1/0', '1/0', 'A/0'])
  sees('B/0') // from another tab, or with an event
  sees('9/0')
  expect(hasSeen()).toBe('B/0')
})

test('an answer without a position, and none at all, make everything necessary', async () => {
  expect(await requests('0/1', undefined, '0/2', new Error('offline'), '0/3', '0/3')).toEqual(['now', '0/1', 'now', '0/2', 'now', '0/3'])
  sees(undefined) // an event whose position is not known
  expect(hasSeen()).toBe('now')
  sees('0/9') // says nothing about what is not known
  expect(hasSeen()).toBe('now')
})

test('what was asked before something became unknown says nothing about it', async () => {
  let arrive: (position: string) => void = () => undefined
  answers = [new Promise((resolve) => (arrive = resolve))]
  const slow = ask(operation, {})
  await requests(new Error('the answer of a mutation is lost'))
  arrive('0/5')
  await slow
  expect(hasSeen()).toBe('now')
})

test('a database that was set back is believed', async () => {
  expect(await requests('F/0', '1/0', '1/0', '1/1')).toEqual(['now', 'F/0', 'now', '1/0'])
})
