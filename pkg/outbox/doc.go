// Package outbox carries events from one service's database to another's without losing one, and lets the receiver apply
// each of them once. The sender's half is the outbox, the receiver's half is the inbox; both live in the schema of their
// service, and an event stream that may lose, repeat and reorder everything lies in between (D44).
//
// It is not a queue and not a bus: it knows neither subjects nor streams, and a program that waits for an event within the same
// service matches it in the transaction that made it.
//
// # The way of an event
//
//	 service A                                                     service B
//	┌─ transaction ─────────┐                                     ┌─ transaction ───────────┐
//	│ change state          │                                     │ Inbox.Claim → first?    │
//	│ outbox.Add(event)     │      Publish      ┌────────┐ consume│   yes: change state     │
//	└───────────────────────┘   ┌──────────────▶│ stream │───────▶│   no:  nothing          │
//	            │ commit        │ position, base└────────┘        └─────────────────────────┘
//	            ▼               │                                              │ commit
//	 outbox: unnumbered ──▶ numbered ──▶ sent ◀─┐                              ▼
//	                                      │     │ no receipt in time:      inbox: claimed or rejected
//	                                      │     └ sent again               inbox_mark: no gap up to here
//	                                      ▼            hint cd.receipt.A       │
//	                                   deleted ◀───────────────────────────────┘
//	                             (every receiver's mark covers it)
//
// # Lanes
//
// An outbox has eight lanes. Those events are in one lane that are about one run, its children and what stops it, of one organization
// (laneOf). Each lane is a sequence of its own, with an epoch, positions, marks and receipts, so that replicas send at the same time and
// what is about the same rows stays in order. A receiver knows nothing of lanes: to it each epoch is a sequence, as before.
//
// # The sender
//
// Add stores the event in the caller's transaction. Each replica has a Sender. All of them hold one advisory lock together, in sessions, by
// which each sees the others, and the lanes that they have, every second (every ten while it is alone) and whenever one comes or leaves
// lanes: the lock of a lane makes a session the only one that sends it, and ends with the session. All have as many lanes, or one more, and
// no lane moves that need not. (A sender of the release before holds the first lock alone: it and these never send at once. What it has
// sent, and nobody has confirmed, is sent again first when a lane is taken.) A sender without a connection to the bus leaves its lanes
// after five seconds, and comes back with the connection. A sender gives the events of its lanes gapless positions (the column place), in a
// transaction of its own that locks the lane's row, so that a position is given only to what has been committed, once, even if two senders
// ever believe to have the lane. AddNumbered gives them in the caller's transaction, under the same lock, unless there are events of the
// lane before that have none, or another transaction has the lane: the replicas of a service do not wait for one another to add events.
// AddNew also gives those before their places, so that the sender has to do so only where nobody adds any more. The
// sender publishes those of a lane in the order of positions and notes when each is due again: after ResendAfter, twice as long each time,
// up to ResendAtMost.
//
// What is due goes to the bus together, in windows of which nothing is stored before what precedes it: many events as an
// atomic batch, which the stream takes whole or not at all, few of them one after the other. A batch that fails, or whose
// answer is lost, is sent again one by one under the same message ids. If it was stored after all, those are duplicates and
// are dropped; if it arrives only now, the whole of it is refused, because it holds duplicates. Either way the order is
// that of the positions.
//
// An event is checked and encoded once, by event.Seal, before it is added: what is stored is what is sent, with the sender's four
// extension attributes put into its text. Only what another version has stored, or a person has written by hand, is decoded and checked
// again. The receiver checks everything.
//
// So a published event carries, beside everything the caller put on it:
//
//	outboxsender    whose outbox it comes from
//	outboxepoch     which sequence of positions
//	outboxposition  its place in the sequence, counted from 1; it stays the same whenever the event is sent again
//	outboxbase      the lowest position that the outbox still held when it was sent
//
// The first publication has the event's id as its message id, so that the stream drops what a crash repeats. A repetition
// has an id of its own, <event id>/<attempt>: the stream's duplicate window cannot know that the first was consumed and
// then lost. Whatever arrives twice is sorted out by the inbox.
//
// Events on the cluster path are calls to a relay, which answers them but keeps no inbox: they get no position and are
// done with once the stream has them. The caller that waits for the answer repeats the call.
//
// # The receiver
//
// Claim records the event in the transaction that applies it; Reject records one that can never be applied, with the
// reason. Either closes it. Inbox.Run moves the mark of each sequence over positions that are closed without a gap, and
// sends the mark to the sender as a hint: a JSON object {sender, receiver, epoch, mark} on cd.receipt.<sender>. A receiver must
// consume, and claim, every event of the sender's outbox, also those that mean nothing to it, or its mark stops.
//
// # What goes wrong, and what then happens
//
//	crash between commit and publish     the row is stored: the next sender of its lane publishes it
//	crash between publish and note       published again under the same message id; the stream or the inbox drops it
//	the database loses the last notes    the same: they are not waited for until they are on its disk
//	two senders of a lane at once        positions are given, and receipts count, under a lock of the lane's row; the rest is repetition
//	a sender dies, or another comes      its locks end with its session: the others share its lanes when they hear of it, a second later
//	                                     at most; a lane rests until it is taken
//	a sender has no way to the bus       it leaves its lanes to the others after five seconds
//	a transaction has a lane for long    what is to get a place in it waits; other lanes do not
//	a commit of another replica          Wake notifies the senders through PostgreSQL; else their 1 s poll finds it
//	a message of a batch is lost         the stream refuses the batch; it is sent one by one
//	the answer to a batch is lost        it is sent again one by one; the stream drops what it has
//	the bus is away                      the round ends; it begins again after a second
//	the bus takes an event not now       (a stream is away, or full:) what comes after it in its lane waits, and is tried again after a
//	                                     second, twice as long each time, up to 16; the others continue. Each try takes seconds, for which
//	                                     the others of its sender wait
//	the connection is lost               what is not confirmed is sent again at once, in its order, before what is new
//	the stream is wiped                  the same; without a lost connection no receipt comes: sent again in a while.
//	                                     Same positions, new message ids
//	an event is refused by the bus       postponed with the reason in last_error and logged; the others continue
//	delivery repeated or out of order    Claim says so; the mark waits for the gap to close
//	crash between claim and receipt      sent again: Claim finds it, and the receipt goes out again
//	a receipt is lost                    the same
//	a receiver is away for days          rows stay; only the oldest ResendWindow positions are sent again
//	a receiver is new, or was wiped      base is where the sequence begins that it can still get
//	the sender's database was set back   a receipt beyond the last position gives it away: a new epoch of the lane begins, what
//	                                     is still held of it is numbered and sent anew, and the inbox knows the ids
//	the database connection dies         the locks are gone with it; the sender begins again, or another replica does
//
// Order is kept per lane as long as nothing has to be sent again for want of a receipt, and for the ResendWindow lowest positions
// when a server is lost and comes back. A receiver to whom it matters beyond that calls Ready before it claims: what comes before
// something that was emitted earlier is left to come again, so that events are applied in the order in which they were committed, in
// any number of replicas, those of each lane. An event that the bus refuses permanently holds the others of its lane up for GapAtMost.
package outbox
