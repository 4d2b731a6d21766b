// Environments and services are shown by their display names, and everything goes by their names (D57).
import { QueryClientProvider } from '@tanstack/react-query'
import { type ReactNode } from 'react'
import { renderToStaticMarkup } from 'react-dom/server'
import { MemoryRouter } from 'react-router'
import { expect, test } from 'vitest'
import { newQueryClient } from '../src/api/hooks'
import { displayed, displayedOf, other } from '../src/logic/names'
import { EnvironmentLink, Named } from '../src/parts/named'
import { Rename, stays } from '../src/parts/rename'

const render = (what: ReactNode) =>
  renderToStaticMarkup(
    <QueryClientProvider client={newQueryClient()}>
      <MemoryRouter>{what}</MemoryRouter>
    </QueryClientProvider>,
  )

const live = { id: 'environment_2', name: 'production', displayName: 'live' }

test('what people see, and the name beside it', () => {
  expect([displayed(live), other(live)]).toEqual(['live', 'production'])
  const plain = { name: 'staging', displayName: 'staging' }
  expect([displayed(plain), other(plain), displayed({ name: 'qa' }), other({ name: 'qa' })]).toEqual(['staging', undefined, 'qa', undefined])
  expect([displayedOf([live, plain], 'production'), displayedOf([live], 'gone'), displayedOf([live], 'live')]).toEqual(['live', 'gone', 'live'])
})

test('the name is the tooltip, and the address', () => {
  expect(render(<Named of={live} />)).toBe('<span title="production">live</span>')
  expect(render(<Named of={{ name: 'staging', displayName: 'staging' }} />)).toBe('staging')
  expect(render(<EnvironmentLink of={live} />)).toBe('<a title="production" href="/environments/production" data-discover="true">live</a>')
  expect(render(<EnvironmentLink of={{ name: '<b>' }} />)).not.toContain('<b>')
})

test('the control says who may not, and what stays', () => {
  const html = render(<Rename of={live} what="environment" can={{ action: 'renameEnvironment', allowed: false, reason: 'ask an owner' }} changed={() => {}} />)
  expect(html).toContain('Rename live')
  expect(html).toContain('Ask an owner')
  expect(stays('environment', 'production')).toContain('go by that name for ever')
  expect(stays('application', 'shop')).toContain('until another application is called that')
})
