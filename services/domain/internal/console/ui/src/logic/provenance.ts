// What the evidence about an image states, in words.

/** What an attestation states, by the type of its predicate; of a plain signature, who signed. */
export function states(predicateType: string | null): string {
  if (predicateType === null || /\/cosign\/sign\//.test(predicateType)) return 'a signature'
  if (/slsa\.dev\/provenance/.test(predicateType)) return 'how it was built'
  if (/cyclonedx|spdx/i.test(predicateType)) return 'what it contains'
  if (/openvex/i.test(predicateType)) return 'which vulnerabilities do not affect it'
  if (/vuln/i.test(predicateType)) return 'which vulnerabilities it has'
  return predicateType
}

/** What an image claims about its source, as text: the address is no link, since anyone who may push can write it. */
export const claim = (c: { source: string | null; revision: string | null }) => [c.source ?? 'commit', c.revision].filter(Boolean).join(c.source ? ' at ' : ' ')

/** log4j-core@2.14.1, a package URL, or sha256:… as the server is asked for it. */
export function searched(text: string): { digest: string } | { name: string; version: string } {
  const word = text.trim()
  if (/^sha256:[0-9a-f]{64}$/.test(word) || /^[0-9a-f]{40}$/.test(word)) return { digest: word }
  const at = word.lastIndexOf('@')
  if (word.startsWith('pkg:') || at <= 0) return { name: word, version: '' }
  return { name: word.slice(0, at), version: word.slice(at + 1) }
}
