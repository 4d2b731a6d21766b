// Package engine runs executions: it claims them, replays their histories, takes their turns and commits them, and finds
// again whatever a dead process or a lost signal has left behind. It declares the port to the store that this needs.
//
// It knows no SQL, no bus and no Starlark: adapters bring those.
//
// # The states of an execution
//
// The store holds the state (execution.State). A live execution changes it with the commit of a turn, or when something arrives; an
// ended one changes it only when it is retried.
//
//	Service.Start ──▶ ┌─────────┐  run.commit: every branch waits for     ┌────────┐
//	                  │         │  something that is stored               │        │
//	                  │ running │ ──────────────────────────────────────▶ │ parked │
//	                  │         │ ◀────────────────────────────────────── │        │
//	                  └─────────┘  it arrives: Store.Receive, Send,       └────────┘
//	                   │   ▲   │   Answer, FireTimers or another's Commit      │
//	           run.end │   │   └──────────────┬────────────────────────────────┘
//	                   ▼   │                  ▼
//	           completed   │            cancelled    Service.Cancel
//	           failed      │            terminated   Operator.Terminate
//	                │      │            quarantined  Engine.quarantine, Engine.setAside
//	                └──────┤                 │
//	                       └─────────────────┘
//	                         Operator.Retry: failed and quarantined executions only
//
// A run that has deferred calls makes them before it ends (program.Machine.Ending). Service.Cancel then does not end it: the
// cancellation is an arrival (run.cancelled), which stops the rest of the program, and the run ends itself as cancelled (run.end).
// Operator.Terminate and a quarantine end it without the calls.
//
// A running execution has an owner, the lease of a process, or is free: then claimLoop of any process takes it. A parked one has none; the
// process whose transaction wakes it becomes its owner, if it runs executions.
//
// A generation that begins too soon after many others is held back: it is running, and rests without a place until
// Loaded.HeldUntil (pace.go).
//
// # The loop
//
// A run (the type, in run.go) takes an execution from turn to turn. Engine.drive makes one, or takes a parked one from the cache.
//
//	claimLoop, Engine.Begin, Engine.Wake
//	         │ scheduler.add: a place, or a queue for one
//	         ▼
//	    Engine.drive
//	         │
//	         ├─ load     Engine.loadRun     the program, its history and what is open, from the store
//	         ├─ replay   run.replay         the program runs up to the end of its history
//	         │           (a parked run has both in memory, and only looks what has arrived: run.begin, run.look)
//	         ▼
//	 ┌─▶ apply    run.apply    completes operations with what has arrived; the program runs on until every branch blocks
//	 │       │
//	 │   commit   run.commit   run.survey sorts the blocked operations: for the store, for this process, refused. Entries, emits, children,
//	 │       │                 opened and closed operations are one transaction (Store.Commit). Then, and only then, the Functions of this
//	 │       │                 process are started (run.start)
//	 │       ├── ended ────────────────▶ run.end        the last entry and the event about the end are in the same transaction
//	 │       ├── a generation ended ───▶ run.next       Engine.drive continues with the run of the following generation
//	 │       ├── parked ───────────────▶ scheduler.park the run stays in the cache as long as there is room
//	 │       ├── fenced ───────────────▶ the run is dropped: another owner has the execution
//	 │       ▼ running
//	 └── await    run.await    until a Function answers, a wake-up, or Settings.Poll
//
// A Function that only computes (activity.Computing) is called within the turn, if there is a place for it (run.compute): its answer
// follows from what the turn has, so it is recorded with what comes after it.
//
// A wake-up between the last look and the commit is not lost: it has incremented Wakes, so the commit leaves the execution running
// instead of parking it.
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
