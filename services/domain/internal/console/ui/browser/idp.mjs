// An identity provider for the browser tests: OpenID Connect with a page of its own, on which one chooses who one is.
import { createHash, createSign, generateKeyPairSync, randomUUID } from 'node:crypto'
import { createServer } from 'node:http'

const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const encode = (value) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url')

function sign(claims) {
  const body = `${encode({ alg: 'RS256', kid: 'k', typ: 'JWT' })}.${encode(claims)}`
  return `${body}.${createSign('RSA-SHA256').update(body).sign(privateKey, 'base64url')}`
}

/** People by name: their groups. The answer has the issuer, the client it knows, and stop(). */
export async function identityProvider(people) {
  const client = { id: 'lockstep', secret: 'a-secret-of-the-client' }
  const codes = new Map()
  let issuer = ''
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, issuer)
    const json = (status, value) => response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(value))
    if (url.pathname === '/.well-known/openid-configuration') {
      return json(200, {
        issuer, authorization_endpoint: `${issuer}/auth`, token_endpoint: `${issuer}/token`, jwks_uri: `${issuer}/keys`,
        response_types_supported: ['code'], subject_types_supported: ['public'], id_token_signing_alg_values_supported: ['RS256'],
      })
    }
    if (url.pathname === '/keys') return json(200, { keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k', alg: 'RS256', use: 'sig' }] })
    if (url.pathname === '/auth') {
      const links = Object.keys(people).map((name) => {
        const code = randomUUID()
        codes.set(code, { name, asked: Object.fromEntries(url.searchParams) })
        const back = new URL(url.searchParams.get('redirect_uri'))
        back.search = new URLSearchParams({ code, state: url.searchParams.get('state') })
        return `<p><a href="${back.href.replaceAll('&', '&amp;')}">${name}</a></p>`
      })
      return response.writeHead(200, { 'Content-Type': 'text/html' }).end(`<!doctype html><html lang="en"><title>Who are you?</title><h1>Who are you?</h1>${links.join('')}`)
    }
    let body = ''
    for await (const chunk of request) body += chunk
    const form = new URLSearchParams(body)
    const known = codes.get(form.get('code'))
    codes.delete(form.get('code'))
    const challenge = createHash('sha256').update(form.get('code_verifier') ?? '').digest('base64url')
    const basic = `Basic ${Buffer.from(`${client.id}:${client.secret}`).toString('base64')}`
    if (!known || challenge !== known.asked.code_challenge || (request.headers.authorization !== basic && form.get('client_secret') !== client.secret)) return json(400, { error: 'invalid_grant' })
    const now = Math.floor(Date.now() / 1000)
    return json(200, {
      access_token: 'unused', token_type: 'Bearer',
      id_token: sign({ iss: issuer, aud: client.id, iat: now, exp: now + 600, nonce: known.asked.nonce, sub: `sub-${known.name}`, email: known.name, email_verified: true, groups: people[known.name] }),
    })
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  issuer = `http://127.0.0.1:${server.address().port}`
  return { issuer, client, stop: () => new Promise((resolve) => { server.close(resolve); server.closeAllConnections() }) }
}
