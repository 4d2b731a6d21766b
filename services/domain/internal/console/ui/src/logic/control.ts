// A change of a control that policies have decided about, in words.

/** Who changes what, from what the policies were asked: "Ann: endFreeze, freeze_3". */
export function changeWords(request: unknown): string {
  if (typeof request !== 'object' || request === null) return ''
  const { control, principal } = request as { control?: { action?: string; name?: string; kind?: string; id?: number }; principal?: { name?: string; kind?: string; id?: string } }
  if (!control?.action) return ''
  const by = principal?.name || [principal?.kind, principal?.id].filter(Boolean).join(' ')
  const what = control.name || `${control.kind ?? ''} ${control.id ?? ''}`.trim()
  return `${by ? `${by}: ` : ''}${control.action}${what ? `, ${what}` : ''}`
}
