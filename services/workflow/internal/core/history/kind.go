package history

// Final reports whether an entry of this kind is the last of its history.
func (k Kind) Final() bool { return k == KindCompleted || k == KindFailed }

// Kind says what an entry of a history records, or what an operation is.
type Kind string

// The kinds of operations. Run, Sleep, Wait, Receive and Poll block their branch until a Completion arrives; the others are answered
// on the spot, and only recorded. The words are stored and hashed: under another name a kind makes every history that
// holds it a Mismatch.
const (
	// KindRun is the answer of a Function.
	KindRun Kind = "run"
	// KindSleep is the end of a sleep.
	KindSleep Kind = "sleep"
	// KindWait is the event that satisfied a wait, or null for its timeout.
	KindWait Kind = "wait"
	// KindReceive is the message that a channel had, or null when there was none in time.
	KindReceive Kind = "receive"
	// KindPoll is the last observation of a poll. Where it ended with an error, there may be a value beside it.
	KindPoll Kind = "poll"
	// KindEmit is an event that left in the transaction that wrote the entry.
	KindEmit Kind = "emit"
	// KindNow is a reading of the clock.
	KindNow Kind = "now"
	// KindUUID is a unique identifier.
	KindUUID Kind = "uuid"
	// KindRandom is a number drawn by chance.
	KindRandom Kind = "random"
	// KindChannel is a channel's token.
	KindChannel Kind = "channel"
	// KindReply is the answer to a call, which was stored in the transaction that wrote the entry.
	KindReply Kind = "reply"
	// KindPrint is a line that the program printed.
	KindPrint Kind = "print"
	// KindAttempt is the outcome of a call of attempt: everything from the operation that its Value names on is part of it.
	KindAttempt Kind = "attempt"
	// KindStatus is a value that the run reports of itself, by its key; null takes it away.
	KindStatus Kind = "status"
	// KindStart is a child that was started in the transaction that wrote the entry; its Value is a Child. One that was refused has an
	// Error.
	KindStart Kind = "start"
	// KindPatched records that the run takes a change of its program.
	KindPatched Kind = "patched"
	// KindDefer is a call that is made at the end of the run. The store keeps that there is one (engine.Store.Cancel).
	KindDefer Kind = "defer"
	// KindEnding is the end of the program, by the name of the final state; what was deferred is called behind it, and each call has an
	// entry of KindDeferred with its outcome.
	KindEnding   Kind = "ending"
	KindDeferred Kind = "deferred"
	// KindDecision is what policies, or people whom they ask, have decided about a call of a Function; its Value is a CallDecision. It answers
	// no operation, and the program does not see it.
	KindDecision Kind = "decision"
	// KindContinue is the end of a generation: the call that the next one begins with. No entry of its generation follows it.
	KindContinue Kind = "continue"
)

// The kinds of the last entry of a history, one for each final state. They answer no operation. Their OpRef has
// branch -1, which no branch of a program has.
const (
	KindCompleted Kind = "completed"
	KindFailed    Kind = "failed"
	KindCancelled Kind = "cancelled"
	// KindQuarantined and KindTerminated are ends that TypeFailed reports.
	KindQuarantined Kind = "quarantined"
	KindTerminated  Kind = "terminated"
)
