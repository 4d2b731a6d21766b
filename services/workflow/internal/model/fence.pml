/* Only the owner of a run writes its history, whatever other processes believe.
 *
 * Three processes want one run: 0 and 2 have the same name (2 is begun while 0 still runs), 1 another. Any of them may stand still
 * between two steps for as long as it likes, so that its lease runs out, and continue as if nothing had happened; be killed; or lose its
 * connection at a commit. An operator cancels the run, or does not. A turn draws a value, records it, and only then has a Function done
 * with it; the last one ends the run.
 *
 * README.md says how to read this, what is left out, and what the words behind @ are.
 *
 * @mutant NO_FENCE assertion: commits that ask neither for turn nor owner, and a history without a key, let a former owner write
 * @mutant EFFECT_FIRST assertion: a Function that begins before its turn is durable is begun again with another value
 * @mutant TRUST_COMMIT assertion: a commit of unknown outcome that is taken for done lets the Function begin
 * @mutant NO_TAKEOVER blocked: what a dead process owned stays so
 * @spare ONLY_KEY: the key of the history alone keeps a former owner out
 * @spare ONLY_ROW: so does the row of the execution, by turn, owner, and a lock that no claim passes
 */
#define TURNS 2
#define CANCELLED 3              /* what an entry holds: the value that was drawn (1, 2), or that the run was cancelled, or its end */
#define COMPLETED 4
#define NOBODY 0

#if defined(NO_FENCE) || defined(ONLY_KEY)
#define turnFits true
#else
#define turnFits (turn == seenTurn && !ended)
#endif
#if defined(NO_FENCE) || defined(ONLY_KEY)
#define ownerFits true
#else
#define ownerFits (owner == p + 1)
#endif
#if defined(NO_FENCE) || defined(ONLY_ROW)
#define keyFits true
#else
#define keyFits (entry[seq + 1] == 0)
#endif

/* --- stored --- */
byte owner;                      /* execution.owner and owner_epoch: a process is a name and an epoch; its number + 1 */
byte turn;                       /* execution.turn, which moves when the run changes hands or state, not with each step */
byte lastSeq;                    /* the end of the history */
bool ended;                      /* execution.state */
byte entry[TURNS + 2];           /* entry, by seq */
byte holder[2];                  /* lease.epoch: which process has a name; its number + 1 */

/* --- not stored --- */
byte row;                        /* who has the lock of the execution's row; 4 the operator, 5 a transaction whose client is gone */
byte leftAt, leftValue;          /* what that one has sent */
byte effect[TURNS + 1];          /* the world: with which value a Function was done, by its idempotency key */
bool killed[3];
byte lives = 3;
byte kills = 1;                  /* how often a process may still be killed, */
byte breaks = 1;                 /* a connection broken, */
byte expiries = 2;               /* or a process that stands still be taken for dead */

#define name(p) ((p) % 2)                /* 0 and 2 have one name */
#define leased(o) (holder[name(o - 1)] == o && !killed[o - 1])     /* lease.until lies ahead */

#define continues(at) (at > 0 && at < TURNS)      /* what lies between the first turn and the last leaves the row as it is */

/* COMMIT of a turn that stands behind entry at.
 * @go internal/store commit.continues
 * @sql internal/store AppendMany: INSERT INTO entry
 * @sql internal/store EndTurns: turn = execution.turn + 1
 */
inline commitTurn(at, what)
{
    /* No entry is written twice, and there is no gap before it. */
    assert(entry[at + 1] == 0);
    assert(at == 0 || entry[at] != 0);
    /* Nothing follows the end. */
    assert(!ended);
    entry[at + 1] = what;
    lastSeq = at + 1;
    if :: !continues(at) -> turn++ :: else fi;
    if :: at == TURNS -> ended = true; owner = NOBODY :: else fi;
    row = 0
}

/* The Function of the last turn that is recorded. Its key is made of run and operation.
 * @go internal/core/engine run.start
 * @go internal/core/history Op.Activity
 */
inline perform(key, with)
{
    /* A Function that is done again is done with the same arguments. */
    assert(effect[key] == 0 || effect[key] == with);
    effect[key] = with
}

inline abandon()
{
    if :: row == p + 1 -> row = 0 :: else fi;
    seenTurn = 0; seq = 0; last = 0; value = 0; ready = false
}

/* A process with its driver of the run.
 * @calls internal/core/engine Engine.Run: Acquire lookoutLoop claimLoop release
 * @calls internal/core/engine run.run: begin apply commit await
 */
proctype process(byte p)
{
    byte seenTurn, seq, last, value;
    bool ready;
    {
        /* @sql internal/store AcquireLease: epoch = lease.epoch + 1
         */
        holder[name(p)] = p + 1;
        do
        :: ended -> break
        /* Its loops look for what no live process owns. A process that pauses for longer than its lease is dead to the others.
         * @calls internal/core/engine Engine.lookoutLoop: Sleep Due raise
         * @sql internal/store Due: lease.epoch = sqlc.arg(epoch)::bigint
         * @sql internal/store Claim: e.owner || '/' || e.owner_epoch <> ALL
         * @sql internal/store Claim: SELECT l.epoch FROM lease l WHERE l.instance
         * @sql internal/store Claim: FOR UPDATE OF e SKIP LOCKED
         */
        :: atomic {
            !ended && row == 0 && holder[name(p)] == p + 1 && (owner == NOBODY || owner == p + 1
#ifndef NO_TAKEOVER
            || name(owner - 1) == name(p) || !leased(owner) || expiries > 0
#endif
            );
            if :: owner != NOBODY && name(owner - 1) != name(p) && leased(owner) -> expiries-- :: else fi;
            owner = p + 1
           };
            /* @calls internal/store Store.loadAll: LoadMany historiesOf openOf
             */
            atomic { if :: ended -> goto lost :: else -> seenTurn = turn; seq = lastSeq; last = entry[seq] fi };
next:
            /* What was recorded last may not have been done: replay comes to it, and so does the driver behind its own commit.
             * @calls internal/core/engine run.commit: survey take store start
             */
            atomic {
                if :: last == 1 || last == 2 -> perform(seq, last) :: else fi;
                if
                :: seq == 0 -> if :: value = 1 :: value = 2 fi
                :: seq > 0 && seq < TURNS -> value = 1        /* one choice is enough */
                :: seq == TURNS -> value = COMPLETED
                fi
            };
#ifdef EFFECT_FIRST
            atomic { if :: seq < TURNS -> perform(seq + 1, value) :: else fi };
#endif
            /* The fence, which locks the row: what another has just committed is looked at again.
             * @calls internal/store Store.commit: gather write
             * @calls internal/store Store.gather: lockTurns
             * @calls internal/store Store.write: endTurns appendEntries
             * @calls internal/store endTurns: HoldTurns EndTurns
             * @sql internal/store LockTurns: WHERE execution.turn = u.turn AND execution.state = 'running' AND execution.owner = u.owner AND execution.owner_epoch = u.epoch
             * @sql internal/store HoldTurns: WHERE execution.turn = u.turn AND execution.state = 'running' AND execution.owner = u.owner AND execution.owner_epoch = u.epoch FOR NO KEY UPDATE
             * @sql internal/store HoldTurns: refuse('LS001'
             * @sql internal/store EndTurns: execution.turn = u.turn AND execution.state = 'running' AND execution.owner = u.owner AND execution.owner_epoch = u.epoch
             * @sql internal/store EndTurns: refuse('LS001'
             */
            atomic {
                row == 0 -> row = p + 1;
                /* @go internal/store fenced
                 * @text internal/store/migrations/1002_executions.sql PRIMARY KEY (execution, seq)
                 */
                if :: turnFits && ownerFits && keyFits -> ready = true :: else -> goto lost fi
            };
            if
            :: atomic { commitTurn(seq, value); ready = false;
                if
                :: ended -> goto lost
                :: else -> if :: !continues(seq) -> seenTurn++ :: else fi; seq++; last = value; value = 0; goto next
                fi }
            /* Nobody knows: it is loaded again.
             * @calls internal/core/engine run.store: Commit committed
             * @go internal/core/engine Engine.driveOne
             */
            :: atomic { breaks > 0 -> breaks--; row = 5; leftAt = seq; leftValue = value; ready = false;
#ifdef TRUST_COMMIT
                if :: seq < TURNS -> if :: !continues(seq) -> seenTurn++ :: else fi; seq++; last = value; value = 0; goto next :: else fi
#endif
               }
            fi;
lost:       atomic { abandon() }
        od
    } unless {
        atomic { killed[p] -> if :: ready -> row = 5; leftAt = seq; leftValue = value :: else fi; abandon() }
    }
}

/* The server carries out the COMMIT of a client that is gone, or notices that it is: at any time. Until then its locks stay. */
proctype postgres()
{
end:
    do
    :: atomic { row == 5 -> if :: true -> commitTurn(leftAt, leftValue) :: true -> row = 0 fi; leftAt = 0; leftValue = 0 }
    od
}

/* An operator cancels the run, or does not: no word of the owner is needed.
 * @calls internal/store Store.end: lockMatching lockWorkflow lastEntry EndExecution appendEntries closeOps
 * @sql internal/store LockWorkflow: FOR UPDATE
 * @sql internal/store EndExecution: turn = turn + 1
 */
proctype operator()
{
    if
    :: true
    :: atomic { row == 0 -> row = 4 };
        atomic {
            if
            :: ended
            :: else -> assert(entry[lastSeq + 1] == 0); lastSeq++; entry[lastSeq] = CANCELLED; ended = true; turn++; owner = NOBODY
            fi;
            row = 0
        }
    fi
}

/* What the world does to them. One of them lives. */
proctype world()
{
    byte p;
end:
    do
    :: atomic {
        kills > 0 && lives > 1 ->
        kills--; lives--;
        if :: !killed[0] -> p = 0 :: !killed[1] -> p = 1 :: !killed[2] -> p = 2 fi;
        killed[p] = true;
        p = 0
       }
    :: atomic { kills > 0 || expiries > 0 -> kills = 0; expiries = 0 }      /* and nothing happens any more */
    od
}

init { atomic { run process(0); run process(1); run process(2); run operator(); run postgres(); run world() } }

/* The run ends, whatever happens. */
ltl progress { <> (ended) }
