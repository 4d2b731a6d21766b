// What people see of environments and services. Everything goes by the name: keys, addresses, gates and pipelines.

/** An environment or a service; the display name is that of what was read without one. */
export interface Named {
  name: string
  displayName?: string
}

/** What people see. */
export const displayed = (of: Named) => of.displayName || of.name

/** The name, where people see another one. */
export const other = (of: Named) => (displayed(of) === of.name ? undefined : of.name)

/** What people see of the one with a name; the name, if no one has it. */
export function displayedOf(all: Named[], name: string): string {
  const found = all.find((one) => one.name === name)
  return found ? displayed(found) : name
}
