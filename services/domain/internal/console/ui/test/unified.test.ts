import { expect, test } from 'vitest'
import { byPath, hunks } from '../src/logic/unified'

test('a diff is read without what only Git reads; lines of a file that begin like a header are lines', () => {
  const diff = 'diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@ kind: Rollout\n a\n--- b\n+++ c\n d\n'
  expect(hunks(diff)).toEqual([
    { kind: 'place', text: '@@ -1,3 +1,3 @@' },
    { kind: 'same', text: 'a' },
    { kind: 'removed', text: '-- b' },
    { kind: 'added', text: '++ c' },
    { kind: 'same', text: 'd' },
  ])
  expect(hunks('')).toEqual([])
})

test('a file that several services are in is shown once', () => {
  expect(byPath([{ path: 'a', n: 1 }, { path: 'b', n: 2 }, { path: 'a', n: 1 }])).toEqual([{ path: 'a', n: 1 }, { path: 'b', n: 2 }])
})
