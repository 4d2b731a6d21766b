// What the pickers of forms offer by name: agents, and the credentials that the viewer may see. It is asked for only where a form has such a picker.
import { useMemo } from 'react'
import { AgentNumbers, CredentialNames, type AgentNumbersData } from '../api/generated'
import { useAsk } from '../api/hooks'

export interface Agent {
  number: number
  name: string
}

export interface Credential {
  name: string
  /** As in credentialKind: git, http or registry. */
  kind: string
}

export interface Offers {
  agents: Agent[]
  credentials: Credential[]
}

/** Agents beyond these pages of 200 are entered by their numbers. */
const mostPages = 5

function useEveryAgent(enabled: boolean): Agent[] {
  const all: Agent[] = []
  let after: string | null = null
  let more = enabled
  for (let page = 0; page < mostPages; page++) {
    // The same number of times in each render: a page that is not there is not asked for.
    const { data }: { data: AgentNumbersData | undefined } = useAsk(AgentNumbers, { first: 200, after }, { enabled: more })
    if (more && data) all.push(...data.agents.nodes)
    after = (more && data?.agents.pageInfo?.endCursor) || null
    more = more && data?.agents.pageInfo?.hasNextPage === true
  }
  return all
}

/** What the pickers of a schema, or of several, offer. */
export function useOffers(schemas: unknown): Offers {
  const text = useMemo(() => JSON.stringify(schemas) ?? '', [schemas])
  const agents = useEveryAgent(text.includes('"agent_picker"'))
  const credentials = useAsk(CredentialNames, {}, { enabled: text.includes('"credential_picker"'), once: true })
  return {
    agents,
    credentials: (credentials.data?.credentials ?? []).filter((c) => c.state !== 'REVOKED').map((c) => ({ name: c.name, kind: c.kind.toLowerCase() })),
  }
}

/** The credentials of the kinds that a field names; all, if it names none. */
export function ofKinds(all: Credential[], kinds: string | string[] | undefined): Credential[] {
  if (kinds === undefined) return all
  const wanted = Array.isArray(kinds) ? kinds : [kinds]
  return all.filter((c) => wanted.includes(c.kind))
}

/** The value of a field whose text is entered: nothing for none. A name that nobody has stays a text, which the schema refuses. */
export function agentValue(agents: Agent[], text: string): number | string | undefined {
  return text.trim() === '' ? undefined : (agentNumber(agents, text) ?? text.trim())
}

/** The number of the agent that was entered by its name, or by its number, 9 or "number 9"; undefined if there is no such name. */
export function agentNumber(agents: Agent[], text: string): number | undefined {
  const name = text.trim()
  const named = agents.find((a) => a.name === name)
  if (named) return named.number
  const digits = /^(?:number )?([0-9]{1,15})$/.exec(name)
  return digits ? Number(digits[1]) : undefined
}

/** What a picker shows for a number: the name of the agent, if it is known. Other numbers are shown as such, since a name may have digits only. */
export function agentName(agents: Agent[], value: unknown): string {
  if (typeof value === 'string') return value
  return typeof value === 'number' ? (agents.find((a) => a.number === value)?.name ?? `number ${value}`) : ''
}
