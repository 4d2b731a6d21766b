/* An event and a wait find each other, whichever comes first and whichever process dies.
 *
 * One run has two waits open at once that the same two events match: A, which has a time limit, and B. Two receivers take events off
 * the stream, a driver takes the run from turn to turn. "Stored" are rows that are committed. What a transaction has written and not
 * committed is in its process's own variables, since nobody else sees it; each step between two semicolons or arrows that reads rows is
 * one statement, which sees what is committed at that moment (READ COMMITTED).
 *
 * README.md says how to read this, what is left out, and what the words behind @ are.
 *
 * @mutant NO_LOCK assertion: the obvious order, each side writes and then looks in its own transaction, loses events
 * @mutant LOOK_FIRST assertion: without the lock of the run an event is given to a wait whose time is just up, and to no other
 * @mutant ACK_FIRST blocked: an event acknowledged before its commit is lost with its process
 * @mutant NO_DEDUPLICATION assertion: without the key of the event one that arrives twice is consumed twice
 * @mutant NO_RECHECK assertion: what a process believes of filters and does not check under the lock leaves an event without a key
 * @mutant FILLED_FIRST assertion: a filter that is noted as filled before it is hides older events after a crash
 * @mutant NO_ASKING_AGAIN assertion: an event handed to a wait whose time was just up is lost to the other
 * @mutant NO_COUNTER assertion: a turn that parks whatever has come meanwhile sleeps over it
 * @mutant NO_COUNT assertion: a driver that takes its wake-up for all that has arrived misses the rest
 */
#define NOTHING 0
#define TIMEOUT 3                 /* what an entry holds: an event (1, 2), or that the time was up */
#define A 0
#define B 1
#define DRIVER 2                  /* the third after the receivers 0 and 1 */
mtype = { PARKED, RUNNING, ENDED }

/* --- stored --- */
bool stored[3];                   /* event, and inbox for what comes from an outbox: the row of an event */
bool key[3];                      /* event_key: what waits find an event by */
bool shape;                       /* shape: new events of the type get keys */
bool filled;                      /* shape.filled: those from before have theirs, too */
bool open[2];                     /* wait */
byte delivery[2];                 /* delivery: the event that was handed to a wait */
bool fired;                       /* timer.fired, of A */
byte entry[2];                    /* entry: how a wait ended */
mtype state = RUNNING;            /* execution.state, and whether it is in runnable */
byte wakes;                       /* execution.wakes: how much has come for the run */

/* --- not stored --- */
byte match;                       /* who has the lock of the events' key; 1 and 2 receivers, 3 the driver */
byte row;                         /* who has the lock of the execution's row */
bool acked[3];                    /* JetStream does not deliver the event any more */
byte wakeup;                        /* engine.Wakeup of a driver that is parked: 1, 2 events for A, 3 its time, 5, 6 events for B; and */
byte wakeupWakes;                   /* the counter that it came with */
bool idle = true;                 /* no driver has the run */
byte crashes = 1;                 /* how often a process may still be killed, and */
byte breaks = 1;                  /* a connection broken */
bool killed[3];

#define had(e) (entry[A] == (e) || entry[B] == (e))
#define handed(e) (delivery[A] == (e) || delivery[B] == (e))
#define missed(e) (stored[e] && !had(e) && !handed(e))
#define is(e, mine, keyed) ((key[e] || (mine == (e) && keyed)) && !had(e) && !handed(e))

/* What has to be true of whatever is committed. */
inline judge()
{
    /* No event is lost: none that is stored and not had is left lying while a wait that matches it is open. */
    assert(!((open[A] && !delivery[A] || open[B] && !delivery[B]) && (missed(1) || missed(2))));
    /* No event is consumed twice. */
    assert(!(entry[A] == entry[B] && entry[A] != NOTHING && entry[A] != TIMEOUT));
    assert(!(delivery[A] && (delivery[A] == delivery[B] || delivery[A] == entry[B])) && !(delivery[B] && delivery[B] == entry[A]));
    /* What is handed something waits for it. */
    assert(!(delivery[A] && !open[A]) && !(delivery[B] && !open[B]));
    /* What is parked has nothing that it could continue with: no process would look. */
    assert(!(state == PARKED && (delivery[A] || delivery[B] || fired)))
}

/* The transactions that make an event or a wait of a key known come one after the other.
 * @sql internal/store LockKeys: pg_advisory_xact_lock
 * @calls internal/store matchLocks.lock: BeginMatching LockTypes LockKeys
 */
inline lockMatching(who)
{
#ifndef NO_LOCK
    atomic { match == 0 -> match = who + 1 }
#else
    skip
#endif
}

/* Locks end with their transaction. */
inline unlock(who)
{
    if :: match == who + 1 -> match = 0 :: else fi;
    if :: row == who + 1 -> row = 0 :: else fi
}

/* The earliest event that a wait may have, beside the one that another is just given. mine is the event of this transaction.
 * @sql internal/store Satisfy: NOT EXISTS (SELECT 1 FROM entry n WHERE n.execution = w.execution AND n.event = event_key.event)
 * @sql internal/store Satisfy: NOT EXISTS (SELECT 1 FROM delivery d WHERE d.execution = w.execution AND d.event = event_key.event)
 * @sql internal/store Satisfy: ORDER BY event_key.key, event_key.event
 */
inline earliest(into, mine, keyed, taken)
{
    if
    :: is(1, mine, keyed) && taken != 1 -> into = 1
    :: else -> if :: is(2, mine, keyed) && taken != 2 -> into = 2 :: else -> into = NOTHING fi
    fi
}

/* The writing part of Satisfy. A parked run continues.
 * @sql internal/store Satisfy: INSERT INTO delivery
 * @sql internal/store Satisfy: wakes = execution.wakes + 1
 * @sql internal/store Satisfy: e.state IN ('running', 'parked')
 * @sql internal/store Satisfy: INSERT INTO runnable
 */
inline handOver(toA, toB)
{
    if :: toA -> delivery[A] = toA :: else fi;
    if :: toB -> delivery[B] = toB :: else fi;
    if :: (toA || toB) && state != ENDED -> wakes++; state = RUNNING :: else fi
}

/* COMMIT of a transaction that has an event. */
inline commitEvent(who)
{
    if :: first -> stored[e] = true; key[e] = key[e] || keyed; handOver(toA, toB) :: else fi;
    unlock(who);
    ready = false;
    judge()
}

/* A receiver takes events until each is acknowledged. Both may process the same one: delivered at least once. The
 * second takes the first event only: what it could do beside that is the same with the names exchanged.
 * @calls pkg/bus loop.deliver: run judge settle
 * @calls internal/events Domain.Handle: ReceiveFrom
 * @calls internal/store Store.receive: do
 */
proctype receiver(byte p)
{
    byte e, toA, toB;
    bool first, keyed, asked, ready;
endAgain:
    {
end:    do
        :: atomic {
            !acked[1] || (!acked[2] && p == 0) ->
            if :: !acked[1] -> e = 1 :: !acked[2] && p == 0 -> e = 2 fi;
#ifdef ACK_FIRST
            acked[e] = true;
#endif
            /* What the process knows of the type's filters, which may be out of date: a strict commit takes it for granted.
             * @calls internal/store Store.commitAll: commit refused commit
             */
            if :: keyed = false :: keyed = true fi
           };
transaction:
            /* @calls internal/store Store.commit: gather write match
             * @calls internal/store Store.gather: lockMatching claimAll lockTurns
             */
            lockMatching(p);
            if :: asked -> keyed = shape :: else fi;
            /* The run is locked before anybody looks what it may get.
             * @calls internal/store Store.lockMatching: lock filtersOf lockMatched
             * @sql internal/store LockMatched: WHERE wait.key = ANY
             * @sql internal/store LockMatched: FOR NO KEY UPDATE
             */
#ifndef LOOK_FIRST
            atomic { !(keyed && (open[A] || open[B])) || row == 0 -> if :: keyed && (open[A] || open[B]) -> row = p + 1 :: else fi };
#endif
            atomic {
                /* @sql pkg/outbox Claim: ON CONFLICT ON CONSTRAINT inbox_event_once
                 * @calls internal/store Store.saveEvents: dropStored SaveEvents
                 * @text internal/store/migrations/1003_events.sql CONSTRAINT event_once UNIQUE
                 * @sql internal/store SaveEvents: refuse('LS001'
                 */
#ifndef NO_DEDUPLICATION
                first = !stored[e];
#else
                first = true;
#endif
                if
                :: asked
#ifndef NO_RECHECK
                :: !asked && (!first || keyed != shape) -> unlock(p); asked = true; goto transaction
#endif
                :: else
                fi;
                /* The waits that have the event's key, in the same transaction.
                 * @calls internal/store Store.match: saveEvents satisfy
                 * @sql internal/store Satisfy: WHERE wait.key = ANY
                 */
                if :: first && keyed && open[A] && !delivery[A] -> earliest(toA, e, keyed, NOTHING) :: else fi;
                if :: first && keyed && open[B] && !delivery[B] -> earliest(toB, e, keyed, toA) :: else fi;
#ifdef NO_DEDUPLICATION
                if :: open[B] && !delivery[B] && !toB && keyed -> toB = e :: else fi;
#endif
                asked = false
            };
            atomic {
                !(toA || toB) || row == 0 || row == p + 1 ->
                if :: toA || toB -> row = p + 1 :: else fi;
                ready = true
            };
            /* Applied, and the process notified; applied or not, and the connection broken before. */
            if
            :: atomic {
                commitEvent(p);
                /* @calls internal/store Store.commit: match wake
                 * @go internal/core/engine scheduler.wake
                 */
                if
                :: idle && (toA || toB) && !(toA && toB) -> wakeup = (toA -> toA : toB + 4); wakeupWakes = wakes
                :: true                                      /* a signal that nobody hears */
                fi
                toA = 0; toB = 0; first = false; keyed = false
               };
               atomic { acked[e] = true; e = 0 }
            :: atomic {
                breaks > 0 -> breaks--;
                if :: true -> commitEvent(p) :: true -> unlock(p); ready = false fi;
                e = 0; toA = 0; toB = 0; first = false; keyed = false
               }
            fi
        od
    } unless {
        atomic {
            killed[p] ->
            if :: ready -> commitEvent(p) :: true -> unlock(p); ready = false fi;   /* the server may have had the COMMIT */
            e = 0; toA = 0; toB = 0; first = false; keyed = false; asked = false;
            killed[p] = false; goto endAgain
        }
    }
}

inline forget()
{
    here = false; waits = false; doneA = 0; doneB = 0; gotA = 0; gotB = 0; toA = 0; toB = 0; seen = 0
}

/* What has come: events before the end of the time.
 * @go internal/core/engine run.apply
 * @sql internal/store Standings: FROM delivery d
 */
inline arrived()
{
    if :: delivery[A] -> gotA = delivery[A] :: else -> if :: fired -> gotA = TIMEOUT :: else fi fi;
    if :: delivery[B] -> gotB = delivery[B] :: else fi
}

/* A shape is registered by itself, before the wait that needs it: from then on every event gets a key of it, and then the older ones get
 * theirs, without the lock.
 * @calls internal/store Store.Commit: prepareWaits do
 * @calls internal/store Store.shape: find FindShape lock SaveShape FindShape backfill add
 * @calls internal/store Store.backfill: EventsOfType SaveKeys ShapeFilled
 */
inline register()
{
    if
    :: !shape -> lockMatching(DRIVER); atomic { shape = true; unlock(DRIVER) }
    :: else
    fi;
    if
    :: !filled ->
#ifdef FILLED_FIRST
        filled = true;
#endif
        atomic { if :: stored[1] -> toA = 1 :: else fi; if :: stored[2] -> toB = 2 :: else fi };
        atomic { if :: toA -> key[1] = true :: else fi; if :: toB -> key[2] = true :: else fi; toA = 0; toB = 0 };
        filled = true
    :: else
    fi
}

#define bothEnd ((doneA || gotA) && (doneB || gotB))
#define gaveUp (gotA == TIMEOUT && !bothEnd)

/* COMMIT of a turn.
 * @sql internal/store AppendMany: INSERT INTO entry
 * @sql internal/store OpenWaits: INSERT INTO wait
 * @sql internal/store CloseMany: DELETE FROM delivery
 * @sql internal/store EndTurns: CASE WHEN u.next = 'parked' AND execution.wakes <> u.wakes THEN 'running' ELSE u.next END
 */
inline commitTurn()
{
    if :: !waits -> open[A] = true; open[B] = true :: else fi;
    if :: gotA -> entry[A] = gotA; open[A] = false; delivery[A] = NOTHING; fired = false :: else fi;
    if :: gotB -> entry[B] = gotB; open[B] = false; delivery[B] = NOTHING :: else fi;
    if
    :: bothEnd -> state = ENDED
#ifndef NO_COUNTER
    :: !bothEnd && wakes != seen
#endif
    :: else -> state = PARKED
    fi;
    handOver(toA, toB);
    unlock(DRIVER);
    ready = false;
    judge()
}

/* The run: its first turn opens both waits, each further one records what has come, and it ends when both waits have ended.
 * @calls internal/core/engine run.run: begin apply commit await
 */
proctype driver()
{
    byte seen, gotA, gotB, doneA, doneB, toA, toB;      /* seen is d.loaded.Wakes */
    bool here, waits, ready;
again:
    {
        do
        :: state == ENDED -> break
        /* It was woken for the run, or finds it: signals may be lost.
         * @sql internal/store Due: FROM runnable r
         * @sql internal/store Claim: FROM runnable r
         */
        :: atomic {
            state == RUNNING ->
            idle = false;
            if
            :: here ->
                /* @sql internal/store Standings: x.wakes
                 * @go internal/core/engine run.fromWakeup
                 */
                if
#ifndef NO_COUNT
                :: wakeup && wakeupWakes == seen + 1 ->
#else
                :: wakeup ->
#endif
                    seen = wakeupWakes;
                    if :: wakeup <= TIMEOUT -> gotA = wakeup :: else -> gotB = wakeup - 4 fi
                :: else -> seen = wakes; arrived()
                fi;
            :: else -> seen = wakes
            fi;
            wakeup = 0; wakeupWakes = 0
           };
            if
            :: atomic { !here ->
                /* Each statement sees what was stored by then, and the counter was read first.
                 * @calls internal/store Store.loadAll: LoadMany historiesOf openOf
                 */
                here = true; doneA = entry[A]; doneB = entry[B]; waits = open[A] || open[B] || doneA || doneB; arrived() }
            :: else
            fi;
            if :: !waits -> register() :: else fi;
            /* Its end is an event of another key. @calls internal/core/engine run.ending: emit
             */
            if :: !waits -> lockMatching(DRIVER) :: else fi;
            /* @sql internal/store EndTurns: UPDATE execution SET
             */
            atomic { row == 0 -> row = DRIVER + 1 };
            /* New waits look for what was stored before, and so do those of a run of which one has ended without an event.
             * @calls internal/store Store.gather: gaveUp
             * @calls internal/store Store.write: closeOps openOps
             * @sql internal/store Satisfy: wait.execution = ANY (sqlc.arg(again)
             */
            atomic {
                if
                :: !waits -> earliest(toA, 0, false, NOTHING); earliest(toB, 0, false, toA)
#ifndef NO_ASKING_AGAIN
                :: waits && gaveUp && !delivery[B] ->
                    if :: delivery[A] -> toB = delivery[A] :: else -> earliest(toB, 0, false, NOTHING) fi
#endif
                :: else
                fi;
                ready = true
            };
            if
            :: atomic { commitTurn();
                if
                :: here = true; waits = true; if :: gotA -> doneA = gotA :: else fi; if :: gotB -> doneB = gotB :: else fi;
                   gotA = 0; gotB = 0; toA = 0; toB = 0
                :: forget()                                  /* the cache is full */
                fi;
                idle = true }
            :: atomic { breaks > 0 -> breaks--; if :: true -> commitTurn() :: true -> unlock(DRIVER); ready = false fi; forget(); idle = true }
            fi
        od
    } unless {
        atomic {
            killed[DRIVER] ->
            if :: ready -> commitTurn() :: true -> unlock(DRIVER); ready = false fi;
            forget(); wakeup = 0; wakeupWakes = 0; idle = true;
            killed[DRIVER] = false; goto again
        }
    }
}

/* The time limit of A passes, at any moment or never.
 * @calls internal/store Store.FireTimers: DueTimers wakeMany FireTimers wake
 * @sql internal/store WakeMany: state = 'running'
 */
proctype timers()
{
end:
    if
    :: open[A]                                               /* never */
    :: atomic {
        open[A] && !fired && row == 0 ->
        fired = true; wakes++; state = RUNNING;
        if :: idle -> wakeup = TIMEOUT; wakeupWakes = wakes :: true fi;
        judge()
       }
    fi
}

/* A process is killed, between any two steps, and begins anew. */
proctype killer()
{
end:
    do
    :: atomic { crashes > 0 -> crashes--; if :: killed[0] = true :: killed[1] = true :: killed[DRIVER] = true fi }
    :: atomic { crashes > 0 -> crashes = 0 }
    od
}

init { atomic { run receiver(0); run receiver(1); run driver(); run timers(); run killer() } }

/* Nothing is blocked for ever: the run ends, whatever happens. */
ltl progress { <> (state == ENDED) }
