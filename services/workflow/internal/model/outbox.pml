/* An event that was committed is applied, once, by its receiver; whatever the stream between them loses and repeats.
 *
 * This is one lane; lanes share nothing but the transactions. Two transactions of the sending service each change something and add an event. Two senders publish, both believing to be the active
 * one. The receiving service takes messages off the stream. The stream stores, drops what it has seen under the same
 * message id, delivers in any order, more than once, and may lose everything. Receipts may be lost. Each process may be killed between
 * any two steps.
 *
 * README.md says how to read this, what is left out, and what the words behind @ are.
 *
 * @mutant DELETE_BEFORE_PUBLISH blocked: deleted first and published then, an event is lost with its sender
 * @mutant DELETE_ON_PUBLISH blocked: deleted once the stream has it, an event is lost with the stream
 * @mutant MARK_OVER_GAPS assertion: a receipt up to the highest position confirms what has not come
 * @mutant BASE_TOO_HIGH assertion: a base that is the event's own position has the mark pass what is still to come
 * @mutant NO_CLAIM assertion: without a claim a message that comes twice is applied twice
 * @mutant CLAIM_APART blocked: a claim in a transaction of its own exists when what it claimed was not applied
 * @mutant NO_CURSOR_LOCK assertion: two who number at once give one position twice
 * @mutant LOOK_BEFORE_LOCK assertion: who gives a position to what had none before it waited for the lock gives it a second one
 * @mutant NO_RESEND blocked: what the stream has lost does not come again
 * @mutant ADD_AFTER_COMMIT blocked: an event that is added behind its commit is lost with its process
 */
#define HELD 1                   /* what becomes of a row */
#define GONE 2
#define ABORTED 3

/* --- stored by the sending service --- */
bool changed[3];                 /* what the transaction of event 1 or 2 changes */
byte outbox[3];                  /* its row: 0 not there yet, HELD, GONE; ABORTED: there never will be one */
byte position[3];                /* outbox.place; 0: none yet */
bool attempted[3];               /* outbox.attempts > 0 */
byte cursor;                     /* outbox_lane.place: the last that was given */
byte confirmed;                  /* outbox_mark.mark */

/* --- stored by the receiving service --- */
bool claimed[3];                 /* inbox */
byte applied[3];                 /* how often the event was applied */
byte claimedAt[3];               /* inbox.position */
byte claimedBase[3];             /* inbox.base */
byte mark;                       /* inbox_mark.mark */

/* --- not stored --- */
byte cursorLock;                 /* who has the cursor's row: 1, 2 senders, 3 a transaction */
byte message[3];                 /* the stream: bit b is set while it holds the event with base b */
bool seen[3];                    /* its duplicate window, of first message ids */
byte hint;                       /* a receipt on its way, the latest one */
bool poke;                       /* Inbox.poke: something has come */
bool killed[3];                  /* senders 0, 1; the receiver 2 */
byte kills = 1;                  /* how often a process may still be killed, */
byte losses = 1;                 /* a hint, a note, or all that the stream holds be lost, or an acknowledgement */

#define held(e) (outbox[e] == HELD)
#define lowest ((held(1) && position[1] && !(held(2) && position[2] && position[2] < position[1])) -> position[1] : ((held(2) && position[2]) -> position[2] : cursor + 1))
#define quiet (!message[1] && !message[2] && !hint && !poke)   /* time enough has passed */
#define settled(e) (outbox[e] == ABORTED && !changed[e] || outbox[e] == GONE && applied[e] == 1)

/* A transaction changes something and adds its event; it may come to nothing. The first leaves the position to the sender, the second
 * takes one itself, unless another has the cursor at the moment. Where there is an event before it that has none, it leaves its own to the
 * sender as well (AddNumbered), or gives that one its position, too (AddNew), unless positions were given since it began to look.
 * @go pkg/outbox Add
 * @sql pkg/outbox Add: ON CONFLICT ON CONSTRAINT outbox_event_once DO NOTHING
 * @go pkg/outbox AddNumbered
 * @sql pkg/outbox AddNumbered: UPDATE outbox_lane SET place = outbox_lane.place +
 * @sql pkg/outbox AddNumbered: ahead.receipted AND ahead.place IS NULL
 * @sql pkg/outbox AddNumbered: FOR NO KEY UPDATE SKIP LOCKED
 * @go pkg/outbox AddNew
 * @sql pkg/outbox AddNew: seen.epoch = l.epoch AND seen.place = l.place
 * @sql pkg/outbox AddNew: FOR NO KEY UPDATE OF l SKIP LOCKED
 * @sql pkg/outbox AddNew: UPDATE outbox_lane SET place = outbox_lane.place + first.events + wanted.events
 */
proctype transaction(byte e)
{
    byte at, ahead, before;
    if
    :: e == 1
    :: e == 2 ->
        atomic { before = cursor; ahead = (held(1) && !position[1] -> 1 : 0) };
        if
        :: atomic { cursorLock == 0 -> cursorLock = 3 };
           if
           :: ahead -> ahead = 0
#ifndef LOOK_BEFORE_LOCK
           :: ahead && cursor == before -> at = cursor + 2
#else
           :: ahead -> at = cursor + 2
#endif
           :: !ahead -> at = cursor + 1
           fi
        :: atomic { cursorLock != 0 -> ahead = 0 }
        fi
    fi;
#ifdef ADD_AFTER_COMMIT
    changed[e] = true;
    if :: true :: atomic { kills > 0 -> kills--; goto died } fi;
#endif
    atomic {
        if
        :: true -> changed[e] = true; outbox[e] = HELD; position[e] = at;
           if :: ahead -> position[1] = at - 1 :: else fi;
           if :: at -> cursor = at :: else fi;
           assert((position[1] -> 1 : 0) + (position[2] -> 1 : 0) == cursor)
        :: true -> outbox[e] = ABORTED
        fi;
        at = 0; ahead = 0; before = 0;
        if :: e == 2 && cursorLock == 3 -> cursorLock = 0 :: else fi
    };
died:
    skip
}

/* A sender of a lane. That a lane has one saves work; this does not rely on it.
 * @calls pkg/outbox Sender.round: settle repeat due publish note
 */
proctype sender(byte p)
{
    byte e, at, base, n;
    bool first;
endAgain:
    {
end:    do
        /* Positions are given to what is committed, under the cursor's lock.
         * @calls pkg/outbox Sender.number: HoldCursor Number
         * @sql pkg/outbox HoldCursor: FOR NO KEY UPDATE SKIP LOCKED
         * @sql pkg/outbox Number: o.receipted AND o.place IS NULL ORDER BY o.id
         */
        :: atomic { held(1) && !position[1] || held(2) && !position[2] ->
#ifndef NO_CURSOR_LOCK
            cursorLock == 0 -> cursorLock = p + 1
#endif
           };
            atomic { n = cursor; e = (held(1) && !position[1] -> 1 : 0) + (held(2) && !position[2] -> 2 : 0) };
            atomic {
                if :: e == 1 || e == 3 -> n++; position[1] = n :: else fi;
                if :: e == 2 || e == 3 -> n++; position[2] = n :: else fi;
                cursor = n; n = 0; e = 0; cursorLock = 0;
                /* Positions are given once, and without a gap. */
                assert(!position[1] || position[1] != position[2]);
                assert((position[1] -> 1 : 0) + (position[2] -> 1 : 0) == cursor)
            }
        /* What is due: what was never sent, and what has got no receipt in time; with the lowest position that is held.
         * @calls pkg/outbox Sender.due: fresh number fresh Overdue
         * @sql pkg/outbox Fresh: f.attempts = 0
         * @sql pkg/outbox Fresh: SELECT min(held.place) FROM outbox held
         * @sql pkg/outbox Overdue: o.next_attempt_at <=
         */
        :: atomic {
            if
            :: held(1) && position[1] && !attempted[1] -> e = 1
            :: held(2) && position[2] && !attempted[2] -> e = 2
#ifndef NO_RESEND
            :: held(1) && attempted[1] && quiet && position[1] == lowest -> e = 1
            :: held(2) && attempted[2] && quiet && position[2] == lowest -> e = 2
#endif
            fi;
            at = position[e]; first = !attempted[e];
#ifndef BASE_TOO_HIGH
            base = lowest
#else
            base = at
#endif
           };
#ifdef DELETE_BEFORE_PUBLISH
            outbox[e] = GONE;
#endif
            /* @calls pkg/outbox Sender.publish: event publishSome
             * @calls pkg/outbox Sender.publishSome: PublishAll
             * @go pkg/outbox messageID
             */
            atomic {
                /* Nothing is published that was not committed. */
                assert(changed[e]);
                if
                :: first && seen[e]                          /* dropped: it has it */
                :: true -> message[e] = message[e] | (1 << base); seen[e] = true
                fi
            };
            /* The note is not waited for until it is on the disk: it may be lost.
             * @calls pkg/outbox Sender.note: Hasten Sent Forget
             * @sql pkg/outbox Hasten: 'synchronous_commit', 'off'
             */
            atomic {
                if
                :: attempted[e] = true
                :: losses > 0 -> losses--
                fi;
#ifdef DELETE_ON_PUBLISH
                outbox[e] = GONE;
#endif
                e = 0; at = 0; base = 0; first = false
            }
        /* A receipt has come.
         * @calls pkg/outbox Sender.settle: State HoldEpochs Confirm DeleteConfirmed
         * @sql pkg/outbox HoldEpochs: FOR KEY SHARE
         * @sql pkg/outbox Confirm: mark = greatest(outbox_mark.mark, excluded.mark)
         * @sql pkg/outbox DeleteConfirmed: outbox.place <= confirmed.mark
         */
        :: atomic { hint > 0 -> if :: hint > confirmed -> confirmed = hint :: else fi; hint = 0 };
            atomic {
                /* What is deleted has been claimed. */
                assert(!(held(1) && position[1] && position[1] <= confirmed && !claimed[1]) && !(held(2) && position[2] && position[2] <= confirmed && !claimed[2]));
                if :: held(1) && position[1] && position[1] <= confirmed -> outbox[1] = GONE :: else fi;
                if :: held(2) && position[2] && position[2] <= confirmed -> outbox[2] = GONE :: else fi
            }
        od
    } unless {
        atomic { killed[p] -> if :: cursorLock == p + 1 -> cursorLock = 0 :: else fi; e = 0; at = 0; base = 0; n = 0; first = false; killed[p] = false; goto endAgain }
    }
}

/* The receiver. Its replicas would wait for each other where they claim the same event.
 * @calls pkg/bus loop.deliver: run judge settle
 */
proctype receiver(byte p)
{
    byte e, base, at;
endAgain:
    {
end:    do
        :: atomic {
            if :: message[1] -> e = 1 :: message[2] -> e = 2 fi;
            if :: message[e] & 2 -> base = 1 :: message[e] & 4 -> base = 2 :: message[e] & 8 -> base = 3 fi;
            at = position[e]                                 /* which the message has with it */
           };
            /* The claim is in the transaction that applies the event.
             * @calls internal/store Store.ReceiveFrom: receive ClaimEvent
             * @calls internal/store received.first: claim
             * @go pkg/outbox Inbox.Claim
             * @sql pkg/outbox Claim: ON CONFLICT ON CONSTRAINT inbox_event_once DO UPDATE
             */
#ifdef CLAIM_APART
            atomic { if :: !claimed[e] -> claimed[e] = true; claimedAt[e] = at; claimedBase[e] = base; base = 9 :: else fi };
            atomic { if :: base == 9 -> applied[e]++ :: else fi };
#else
            atomic {
#ifndef NO_CLAIM
                if :: !claimed[e] -> applied[e]++ :: else fi;
#else
                applied[e]++;
#endif
                /* Nothing is applied twice, and nothing that was not committed. */
                assert(applied[e] == 1 && changed[e]);
                claimed[e] = true; claimedAt[e] = at; claimedBase[e] = base
            };
#endif
            /* @calls pkg/outbox Inbox.record: Claim remember
             */
            poke = true;
            atomic {
                if
                :: message[e] = message[e] & (255 - (1 << base))
                :: losses > 0 -> losses--                    /* it comes again */
                fi;
                e = 0; base = 0; at = 0
            }
        od
    } unless {
        atomic { killed[p] -> e = 0; base = 0; at = 0; killed[p] = false; goto endAgain }
    }
}

/* The mark moves over positions that have arrived, without a gap, and is reported to the sender. What lies below a base will not arrive any more.
 * @calls pkg/outbox Inbox.confirm: advance send
 * @calls pkg/outbox Inbox.advance: BeginMark AdvanceMark
 * @sql pkg/outbox AdvanceMark: SELECT max(i.base) - 1
 * @sql pkg/outbox AdvanceMark: ranked.before = start.mark
 */
proctype marker()
{
#define come(n) (claimed[1] && claimedAt[1] == (n) || claimed[2] && claimedAt[2] == (n))
end:
    do
    :: atomic { poke ->
        poke = false;
        if :: claimed[1] && claimedAt[1] > mark && claimedBase[1] - 1 > mark -> mark = claimedBase[1] - 1 :: else fi;
        if :: claimed[2] && claimedAt[2] > mark && claimedBase[2] - 1 > mark -> mark = claimedBase[2] - 1 :: else fi;
#ifndef MARK_OVER_GAPS
        if :: come(mark + 1) -> mark++ :: else fi;
        if :: come(mark + 1) -> mark++ :: else fi;
#else
        if :: come(2) -> mark = 2 :: else -> if :: come(1) -> mark = 1 :: else fi fi;
#endif
        if
        :: mark -> if :: hint = mark :: losses > 0 -> losses-- fi
        :: else
        fi
       }
    od
}

/* What the world does. */
proctype world()
{
end:
    do
    :: atomic { kills > 0 -> kills--; if :: killed[0] = true :: killed[1] = true :: killed[2] = true; poke = false fi }
    :: atomic { kills > 0 || losses > 0 -> kills = 0; losses = 0 }          /* and nothing happens any more */
    :: atomic { losses > 0 && (message[1] || message[2]) -> losses--; message[1] = 0; message[2] = 0; seen[1] = false; seen[2] = false }
    od
}

/* When nothing can happen any more, everything has arrived. */
proctype watch() { timeout; (settled(1) && settled(2)) }

init { atomic { run watch(); run transaction(1); run transaction(2); run sender(0); run sender(1); run receiver(2); run marker(); run world() } }

/* Each event is applied and its row gone, or its transaction came to nothing. */
ltl progress { <> (settled(1) && settled(2)) }
