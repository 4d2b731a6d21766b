// Icons, drawn here: sixteen units square, in the colour of the text beside them. They never stand without a word.
const paths: Record<string, string> = {
  pending: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Z',
  moving: 'M14 8a6 6 0 1 1-6-6M14 8l-2.2-2M14 8l1.6-2.4',
  paused: 'M5.5 3v10M10.5 3v10',
  completed: 'M2.5 8.5 6.5 12.5 13.5 4',
  failed: 'M3.5 3.5l9 9M12.5 3.5l-9 9',
  cancelled: 'M3 13 13 3M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Z',
  degraded: 'M8 2 15 14H1L8 2ZM8 6.5v3.5M8 12v.2',
  gate: 'M4 7V5a4 4 0 0 1 8 0v2M3 7h10v7H3V7Z',
  here: 'M8 14s4.5-4 4.5-7.5a4.5 4.5 0 0 0-9 0C3.5 10 8 14 8 14ZM8 8.2a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4Z',
  back: 'M6 4 2 8l4 4M2 8h8a4 4 0 0 1 0 8H8',
  skipped: 'M3 4l5 4-5 4V4ZM9 4l5 4-5 4V4Z',
  where: 'M2 2h5v5H2ZM9 2h5v5H9ZM2 9h5v5H2ZM9 9h5v5H9Z',
  inbox: 'M2 9 4 3h8l2 6v4H2V9ZM2 9h3.5l1 2h3l1-2H14',
  rollout: 'M2 4h8M2 8h12M2 12h6M10 2l3 2-3 2',
  app: 'M8 1.5 14 5v6l-6 3.5L2 11V5l6-3.5ZM2 5l6 3.5L14 5M8 8.5v6',
  environment: 'M2 3h12v4H2ZM2 9h12v4H2ZM4.5 5h.1M4.5 11h.1',
  source: 'M2 4.5C2 3 4.7 2 8 2s6 1 6 2.5S11.3 7 8 7 2 6 2 4.5ZM2 4.5v7C2 13 4.7 14 8 14s6-1 6-2.5v-7M2 8c0 1.500 2.700 2.500 6 2.500S14 9.500 14 8',
  workflow: 'M2 2h4v4H2ZM10 10h4v4h-4ZM6 4h4a2 2 0 0 1 2 2v4',
  agent: 'M8 2v3M3 5h10v8H3ZM6 8.500h.1M10 8.500h.1M6 11h4M1 8v3M15 8v3',
  people: 'M6 8a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5ZM1.500 14c0-2.500 2-4 4.500-4s4.500 1.500 4.500 4M10.500 3.200a2.500 2.500 0 0 1 0 4.600M12 10.200c1.600.5 2.500 1.900 2.500 3.800',
  journal: 'M3 2h10v12H3ZM5.500 5h5M5.500 8h5M5.500 11h3',
  copy: 'M5 5V2h9v9h-3M2 5h9v9H2Z',
  plus: 'M8 3v10M3 8h10',
  drift: 'M3 3v10M3 8h4c3 0 3-4 6-4M11 2l2.5 2L11 6M9 12h4',
  clock: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2ZM8 5v3.5l2.2 1.5',
  offline: 'M2 2l12 12M4 8a6 6 0 0 1 2-1.5M8 11.8v.2M2 5.5A9 9 0 0 1 4 4.2M7 3.3a9 9 0 0 1 7 2.2M10 6.7a6 6 0 0 1 2 1.3',
  arrow: 'M3 8h10M9 4l4 4-4 4',
  same: 'M3 6h10M3 10h10',
  docs: 'M8 4C6.5 2.800 4.500 2.500 2 2.500v10c2.500 0 4.500.3 6 1.500M8 4c1.500-1.200 3.500-1.500 6-1.500v10c-2.500 0-4.500.3-6 1.500M8 4v10',
  signout: 'M6 2H3v12h3M7 8h7M11 5l3 3-3 3',
}

export type IconName = keyof typeof paths

export function Icon({ name, spin }: { name: string; spin?: boolean }) {
  return (
    <svg className={spin ? 'icon spin' : 'icon'} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={paths[name] ?? paths.pending} />
    </svg>
  )
}
