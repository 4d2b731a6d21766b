// Labels and links as people type them: one on each line.

/** Values by name. */
export type Values = Record<string, string>

/** One line for each value. */
export function lines(values: Values): string {
  return Object.keys(values)
    .sort()
    .map((name) => `${name}=${values[name]}`)
    .join('\n')
}

/** What the lines say, and the first line that says nothing. */
export function parseLines(text: string): { values: Values; wrong: string | undefined } {
  const values: Values = {}
  let wrong: string | undefined
  for (const line of text.split('\n').map((l) => l.trim()).filter(Boolean)) {
    const at = line.indexOf('=')
    if (at <= 0) wrong ??= line
    else values[line.slice(0, at).trim()] = line.slice(at + 1).trim()
  }
  return { values, wrong }
}

/** What has to be set and ended to come from values to others. */
export function changes(before: Values, after: Values): { set: Values; unset: string[] } {
  return {
    set: Object.fromEntries(Object.entries(after).filter(([name, value]) => before[name] !== value)),
    unset: Object.keys(before).filter((name) => !(name in after)),
  }
}
