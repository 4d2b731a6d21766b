import { describe, expect, it } from 'vitest'
import { changes, lines, parseLines } from '../src/logic/details'

describe('labels and links as people type them', () => {
  it('come back as they were', () => {
    const values = { team: 'payments', 'example.com/tier': '', runbook: 'https://wiki.example.com/?q=a=b' }
    expect(parseLines(lines(values))).toEqual({ values, wrong: undefined })
  })
  it('names the first line that has no value', () => {
    expect(parseLines('a=b\nnothing\n\n=x')).toEqual({ values: { a: 'b' }, wrong: 'nothing' })
  })
  it('sends only what changes, so that what another person has set stays', () => {
    expect(changes({ a: '1', b: '2', c: '3' }, { a: '1', b: '4', d: '5' })).toEqual({ set: { b: '4', d: '5' }, unset: ['c'] })
  })
})
