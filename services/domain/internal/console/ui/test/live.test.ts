// The stream, from bytes to events.
import { expect, test } from 'vitest'
import { serverEvents, type ServerEvent } from '../src/api/sse'

const stream = (...pieces: Uint8Array[]) => new Response(new ReadableStream({
  start(controller) {
    for (const p of pieces) controller.enqueue(p)
    controller.close()
  },
})).body!

const bytes = (text: string) => new TextEncoder().encode(text)

async function read(...pieces: Uint8Array[]): Promise<{ events: ServerEvent[]; heard: number }> {
  const events: ServerEvent[] = []
  let heard = 0
  for await (const e of serverEvents(stream(...pieces), () => heard++)) events.push(e)
  return { events, heard }
}

test('events come whole, however their bytes are cut', async () => {
  const text = bytes(':\n\nid: 7\nevent: next\ndata: {"a":"é"}\n\nevent: complete\ndata:\n\n')
  const expected = [{ event: 'next', data: '{"a":"é"}' }, { event: 'complete', data: '' }]
  for (let cut = 1; cut < text.length; cut++) {
    expect((await read(text.slice(0, cut), text.slice(cut))).events).toEqual(expected)
  }
  expect((await read(bytes('event: next\r\ndata: {}\r\n\r\n'))).events).toEqual([{ event: 'next', data: '{}' }])
})

test('heartbeats are heard and are no events; half an event is none', async () => {
  expect(await read(bytes(':\n\n'), bytes(':\n\n'))).toEqual({ events: [], heard: 2 })
  expect((await read(bytes('event: next\ndata: {}'))).events).toEqual([])
})
