// Verifies a webhook of Lockstep as a receiver does: with the library of Standard Webhooks. A request is read from the standard input, as
// {"headers": {…}, "body": "…"}; WEBHOOK_SECRET is what the channel signs with. Of a server, these are the headers and the raw body.
import { text } from 'node:stream/consumers'
import { Webhook } from 'standardwebhooks'

const { headers, body } = JSON.parse(await text(process.stdin))
try {
  const event = new Webhook(process.env.WEBHOOK_SECRET).verify(body, headers)
  console.log(`valid ${headers['webhook-id']} ${event.type}`)
} catch (e) {
  console.log(`invalid: ${e.message}`)
  process.exitCode = 1
}
