// What the viewer may do with something now, and why not: the server says both, by the rule it refuses by.

export interface Ability {
  action: string
  allowed: boolean
  reason: string | null
}

/** What an action's button needs to know. An action that the server does not speak of is left to the server to refuse. */
export function ability(all: Ability[] | undefined, action: string): Ability {
  return all?.find((a) => a.action === action) ?? { action, allowed: true, reason: null }
}
