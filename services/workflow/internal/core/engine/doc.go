// Package engine runs executions: it claims them, replays their histories, takes their turns and commits them, and finds
// again whatever a dead process or a lost signal has left behind. It declares the port to the store that this needs.
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
//   - A signal is a hint. Whatever it reports is found in the store as well, by a loop that looks every Poll (D44).
package engine
