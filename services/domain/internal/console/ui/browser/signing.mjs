// What a pipeline attaches to the images that it has built: signed statements, as cosign 3 does.
import { createHash, generateKeyPairSync, sign } from 'node:crypto'

const digestOf = (bytes) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`
const bundleType = 'application/vnd.dev.sigstore.bundle.v0.3+json'
const manifestType = 'application/vnd.oci.image.manifest.v1+json'
const statementType = 'application/vnd.in-toto+json'

/** A key, and its public half as a service is configured with. */
export function newKey() {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  return { privateKey, pem: publicKey.export({ type: 'spki', format: 'pem' }) }
}

/** Attaches a signed statement to an image, by the digest of its manifest; spoiled, the statement is another one than was signed. */
export async function attest(stack, repository, digest, key, predicateType, predicate, { spoiled = false } = {}) {
  const base = `http://${stack.oci}/v2/${repository}`
  const statement = (of) => JSON.stringify({
    _type: 'https://in-toto.io/Statement/v1', subject: [{ name: repository, digest: { sha256: digest.replace('sha256:', '') } }], predicateType, predicate: of,
  })
  const signed = statement(predicate)
  const message = Buffer.from(`DSSEv1 ${statementType.length} ${statementType} ${Buffer.byteLength(signed)} ${signed}`)
  const bundle = JSON.stringify({
    mediaType: bundleType, verificationMaterial: { publicKey: { hint: '' } },
    dsseEnvelope: {
      payload: Buffer.from(spoiled ? statement({ ...predicate, spoiled }) : signed).toString('base64'), payloadType: statementType,
      signatures: [{ sig: sign('sha256', message, { key: key.privateKey, dsaEncoding: 'der' }).toString('base64') }],
    },
  })
  const blob = async (content) => {
    const upload = await fetch(`${base}/blobs/uploads/`, { method: 'POST' })
    const place = new URL(upload.headers.get('location') ?? '', base)
    place.searchParams.set('digest', digestOf(content))
    await taken(fetch(place, { method: 'PUT', body: content, headers: { 'Content-Type': 'application/octet-stream' } }))
    return { digest: digestOf(content), size: Buffer.byteLength(content) }
  }
  const image = await taken(fetch(`${base}/manifests/${digest}`, { headers: { Accept: manifestType } }))
  const subject = { mediaType: image.headers.get('content-type'), digest, size: Buffer.byteLength(await image.text()) }
  const body = JSON.stringify({
    schemaVersion: 2, mediaType: manifestType, artifactType: bundleType, subject,
    config: { mediaType: 'application/vnd.oci.empty.v1+json', ...(await blob('{}')) }, layers: [{ mediaType: bundleType, ...(await blob(bundle)) }],
  })
  await taken(fetch(`${base}/manifests/${digestOf(body)}`, { method: 'PUT', body, headers: { 'Content-Type': manifestType } }))
}

async function taken(request) {
  const response = await request
  if (!response.ok) throw new Error(`${response.url}: ${response.status} ${await response.text()}`)
  return response
}
