// Package core holds the nouns and rules of the durable engine: executions, their histories, waits, timers and calls,
// the ports to the store and to Functions, and the turn that ties them together.
//
// It knows no SQL, no bus and no Starlark: adapters bring those.
//
// # What has to stay true
//
// Every line may be the last that a process carries out. Four rules make that harmless:
//
//   - Nothing leaves before the commit of the turn that wants it. Functions and calls start after it; events leave
//     through the outbox, which is part of it.
//   - What may happen twice has a key that is the same both times: the activity's id (E24).
//   - A former owner can write nothing. The turn number, the owner's epoch and the key of the history refuse it; the
//     lease only keeps two processes from doing the same work.
//   - A signal is a hint. Whatever it says is found in the store as well, by a loop that looks every Poll (D44).
package core
