// Server-sent events out of a response's body. The browser's own EventSource cannot send the header that shows that it is this
// page which asks, and says nothing of heartbeats, by which one knows that the other side is still there.

export interface ServerEvent {
  event: string
  data: string
}

/** Reads events as they come; heard is called for every piece that does, also for comments, which are heartbeats. */
export async function* serverEvents(body: ReadableStream<Uint8Array>, heard: () => void): AsyncGenerator<ServerEvent> {
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let rest = ''
  let event = ''
  let data: string[] = []
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      heard()
      const lines = (rest + decoder.decode(value, { stream: true })).split('\n')
      rest = lines.pop() ?? ''
      for (const raw of lines) {
        const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw
        if (line === '') {
          if (event !== '' || data.length > 0) yield { event: event || 'message', data: data.join('\n') }
          event = ''
          data = []
        } else if (line.startsWith('event:')) event = line.slice(6).trim()
        else if (line.startsWith('data:')) data.push(line.slice(5).trimStart())
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined) // it may be broken already
  }
}
