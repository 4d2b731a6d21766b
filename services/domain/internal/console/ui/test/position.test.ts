// What a page has seen goes along with each request, so that no answer is older.
import { afterEach, expect, test, vi } from 'vitest'
import { ask, hasSeen, sees } from '../src/api/client'
import type { Operation } from '../src/api/generated'

afterEach(() => vi.unstubAllGlobals())

test('a request says what was seen, and the newest that was seen is kept', async () => {
  const said: Array<string | null> = []
  let answered: string | undefined
  vi.stubGlobal('fetch', async (_: string, init: RequestInit) => {
    said.push(new Headers(init.headers).get('Lockstep-Position'))
    return new Response('{"data":{"a":1}}', { headers: answered ? { 'Lockstep-Position': answered } : {} })
  })
  const operation = { text: '{ a }', name: 'a' } as unknown as Operation<{ a: number }, object>
  const request = async (position?: string) => {
    answered = position
    await ask(operation, {})
  }
  await request() // a server without a standby
  await request('0/FFFFFFFF')
  await request('0/10') // an answer that was overtaken
  await request('1/0')
  await request()
  expect(said).toEqual(['now', 'now', '0/FFFFFFFF', '0/FFFFFFFF', '1/0'])

  sees('A/0') // from another tab, or with an event
  sees('9/0')
  sees(null)
  sees('now')
  expect(hasSeen()).toBe('A/0')
})
