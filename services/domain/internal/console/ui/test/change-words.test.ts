import { expect, test } from 'vitest'
import { changeWords } from '../src/logic/control'

test('a change of a control says who changes what', () => {
  expect(changeWords({ control: { action: 'endFreeze', kind: 'freeze', id: 3, name: 'freeze_3' }, principal: { kind: 'User', id: '1', name: 'Ann' } })).toBe('Ann: endFreeze, freeze_3')
  expect(changeWords({ control: { action: 'putPolicySet', kind: 'policyset', id: 0 }, principal: { kind: 'Machine', id: '5' } })).toBe('Machine 5: putPolicySet, policyset 0')
})

test('what is no change of a control has no words', () => {
  for (const request of [null, 'x', {}, { control: {} }]) expect(changeWords(request)).toBe('')
})
