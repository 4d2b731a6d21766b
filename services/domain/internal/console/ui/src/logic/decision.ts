// What policies were asked, as values with their names.

/** Each value of a recorded request, by its path: environment.tier is production. An empty list is none. */
export function values(request: unknown, path = ''): Array<[path: string, value: string]> {
  if (Array.isArray(request) && request.some((one) => typeof one === 'object' && one !== null)) {
    return request.flatMap((one, i) => values(one, `${path}[${i + 1}]`))
  }
  if (Array.isArray(request)) return [[path, request.length === 0 ? 'none' : request.join(', ')]]
  if (typeof request === 'object' && request !== null) {
    return Object.entries(request).flatMap(([name, value]) => values(value, path === '' ? name : `${path}.${name}`))
  }
  return request === null || request === undefined ? [] : [[path, String(request)]]
}

/** Of decisions, the latest first, the latest about each passage; null is the creation of the rollout. */
export function latest<Decision extends { gateId: string | null }>(all: Decision[]): Map<string | null, Decision> {
  const found = new Map<string | null, Decision>()
  for (const one of all) if (!found.has(one.gateId)) found.set(one.gateId, one)
  return found
}
