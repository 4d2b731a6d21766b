/* A passage is opened by the domain service alone, once, when everything that it needs holds; and the engine changes nothing without it.
 *
 * The program of a rollout enters an environment, which two people have to approve, and leaves one weight in it. It may request an approval
 * of its own, and request the entrance twice. Beside it a hostile branch of the same run tries every change at any moment, forges a grant,
 * and may report the rollout's end. Operators hold, abort, retry and cancel; anybody may reject. Another rollout has a grant of its own for
 * the same environment. The domain service may be killed between any two steps; what the two services send one another is delivered in
 * any order, late, and more than once.
 *
 * README.md says how to read this, what is left out, and what the words behind @ are.
 *
 * @mutant NO_SOURCE assertion: a grant that a program emits is taken for the domain's
 * @mutant ANY_RUN assertion: the grant of another rollout opens the environment to this one
 * @mutant HOLD_ONLY assertion: a request that looks at the hold alone opens without approvals
 * @mutant WEIGHTS_UNASKED assertion: an approval that the program requests for itself is no condition of what is asked already
 * @mutant OPENS_ENDED assertion: an answer that comes behind the end still opens
 * @mutant OPENS_TWICE assertion: what was opened is opened again for a request that comes again
 * @mutant UNLOCKED assertion: a hold comes between the look at the conditions and the row
 * @mutant ON_REQUEST_ONLY blocked: conditions that are looked at when a passage is requested, and never again
 * @mutant DEAF_TO_RESUME blocked: conditions that are not looked at again when a hold ends
 * @mutant GRANT_BEHIND_COMMIT blocked: a grant that is sent behind the commit of its row is lost with its process
 * @mutant CLAIM_APART blocked: a request that was claimed apart from what it changes is lost with its process
 * @mutant GUARD_LATER assertion: a program that sees its grant before the guard does is refused what it was granted
 * @mutant LAST_RECEIVED assertion: a retry that comes behind the next abort lifts it
 * @mutant KEEPS_WEIGHTS assertion: what was granted at a weight before the abort leaves it again
 * @mutant GRANT_REVIVES assertion: a grant that comes behind the end lifts it
 * @mutant CHECKED_ONCE assertion: an attempt that follows an abort is executed because the one before it was
 * @mutant NO_BACKSTOP assertion: a rollout ends well although it was never let in
 * @deep DEEP: two aborts, and three times that something goes wrong
 * @spare NO_CLAIM: a request that is applied twice opens nothing twice
 */
#if defined(DEEP) || defined(LAST_RECEIVED)
#define ABORTS 2
#else
#define ABORTS 1
#endif
#define ENTRANCE 0
#define WEIGHT 1

/* From the program to the domain service. The entrance is requested under two ids. */
#define REQUEST(gate, e) (1 << ((gate) + 2 * (e)))            /* 1, 2, 4, 8 */
#define AGAIN 16
#define OWN 32
#define HEALTHY 64
#define LIE 128                  /* the same of the hostile branch */

/* From the domain service to the engine, in the order of their times. */
#define GRANT(gate, e) (1 << ((gate) + 2 * (e)))              /* 1, 2, 4, 8 */
#define ABORT(n) (8 << (n))                                   /* 16, 32 */
#define RETRY 64
#define REVOKED 128
#define grantTime(e) (1 + 3 * (e))
#define abortTime(n) (3 * (n) - 1)
#define RETRY_TIME 3

#define ASKED 1
#define GIVEN 2

/* --- stored by the domain service --- */
bool asking[2];                  /* VerbRequestPassage without VerbPassGate */
byte answers;                    /* how many have approved the entrance since the last abort */
byte own;                        /* the approval that the program has requested */
bool hold, aborted, ended, completed;
byte epoch;                      /* how often it was retried */
byte opened[4];                  /* rows that open a gate, by gate and epoch */
byte claimed;                    /* inbox */

/* --- stored by the engine --- */
byte enteredAt, leftAt;          /* passage.granted_at */
byte abortedAt, retriedAt;       /* guarded_run */
bool revoked;

/* --- in both outboxes and the stream --- */
byte up, acked;                  /* what was sent to the domain service, and what it has acknowledged */
byte down, got;                  /* what was sent to the engine, and what it has stored for waits */

/* --- not stored --- */
#if defined(CLAIM_APART) || defined(GRANT_BEHIND_COMMIT)
bool killed;
#endif
#ifdef DEEP
byte trouble = 3;                /* how often the domain service may still be killed, or a message be delivered again, either way */
#else
byte trouble = 1;
#endif
bool effect;                     /* the first attempt at a change was executed, and its answer lost */
/* What is true, whatever anybody has stored: the latest abort and the end that have come to the engine. */
byte latestAbort;
bool endReceived;
#ifdef UNLOCKED
byte intends;
#endif
#ifdef GRANT_BEHIND_COMMIT
byte owed;
#endif
#ifdef GUARD_LATER
byte unguarded;
#endif

#define everOpened(gate) (opened[gate] || opened[2 + gate])

/* What a passage needs: both approvals at the entrance, and an answer to whatever the program has requested for itself.
 * @calls domain/internal/core/rollout passages.complete: needs Satisfies
 */
#define complete(gate) (own != ASKED && (gate == WEIGHT || answers == 2))
#ifdef HOLD_ONLY
#define looksComplete(gate) true
#else
#ifdef WEIGHTS_UNASKED
#define looksComplete(gate) (gate == WEIGHT || answers == 2)
#else
#define looksComplete(gate) complete(gate)
#endif
#endif

/* The row and the event, in one transaction.
 * @calls domain/internal/core/rollout passages.pass: Record grant
 * @calls domain/internal/core/rollout tree.grant: opening Grant
 * @go domain/internal/store tx.Grant
 */
inline open(gate)
{
    /* It is opened with everything that it needs, */
    assert(complete(gate) && !hold && !aborted && !ended);
    /* and once, until an abort leaves it. */
    assert(opened[gate + 2 * epoch] == 0);
    opened[gate + 2 * epoch] = 1;
    asking[gate] = false;
#ifdef GRANT_BEHIND_COMMIT
    owed = owed | GRANT(gate, epoch)
#else
    down = down | GRANT(gate, epoch)
#endif
}

/* What follows every change of what a passage depends on. The rollout's row is locked: it is one step.
 * @calls domain/internal/core/rollout UseCases.decide: Terminal held openMissing stand decideOne
 * @calls domain/internal/core/rollout UseCases.decideOne: complete judgeAll stops stop pass
 * @calls domain/internal/core/rollout lockTree: LockRollout readUnder
 */
inline decide()
{
    if
#ifdef OPENS_ENDED
    :: !aborted && !hold ->
#else
    :: !ended && !aborted && !hold ->
#endif
#ifdef UNLOCKED
        if :: asking[ENTRANCE] && looksComplete(ENTRANCE) -> intends = intends | 1 :: else fi;
        if :: asking[WEIGHT] && looksComplete(WEIGHT) -> intends = intends | 2 :: else fi
#else
        if :: asking[ENTRANCE] && looksComplete(ENTRANCE) -> open(ENTRANCE) :: else fi;
        if :: asking[WEIGHT] && looksComplete(WEIGHT) -> open(WEIGHT) :: else fi
#endif
    :: else
    fi
}

/* @calls domain/internal/core/rollout PassageRequested.apply: lockTree Terminal held grant complete pass Record decide
 */
inline request(gate)
{
    if
    :: ended || aborted || asking[gate] -> skip
#ifndef OPENS_TWICE
    :: opened[gate + 2 * epoch] -> skip      /* announced again as it was: the message exists already, and may come again */
    :: else ->
#else
    :: !ended && !aborted && !asking[gate] ->
#endif
        asking[gate] = true; decide()
    fi
}

/* The end is sent in the transaction that writes it.
 * @calls domain/internal/core/rollout tree.moveRollout: write Terminal Revoke
 */
inline finish() { ended = true; down = down | REVOKED }

/* @calls domain/internal/core/rollout Moved.apply: lockTree claimsEnd moveRollout
 * @calls domain/internal/core/rollout UseCases.claimsEnd: passages left breach
 * @calls domain/internal/core/rollout UseCases.breach: moveRollout stopWorkflow
 */
inline healthy()
{
    if
    :: ended
#ifdef NO_BACKSTOP
    :: !ended ->
#else
    :: !ended && !(everOpened(ENTRANCE) && everOpened(WEIGHT)) -> finish()
    :: !ended && everOpened(ENTRANCE) && everOpened(WEIGHT) ->
#endif
        /* What ends well was let through everything. */
        assert(everOpened(ENTRANCE) && everOpened(WEIGHT));
        completed = true; finish()
    fi
}

inline apply(m)
{
    if
    :: m == REQUEST(ENTRANCE, 0) || m == REQUEST(ENTRANCE, 1) || m == AGAIN -> request(ENTRANCE)
    :: m == REQUEST(WEIGHT, 0) || m == REQUEST(WEIGHT, 1) -> request(WEIGHT)
    /* @calls domain/internal/core/rollout ApprovalRequested.apply: lockTree Terminal passages rule ask
     */
    :: m == OWN -> if :: !ended && !aborted && own == 0 -> own = ASKED :: else fi
    :: m == HEALTHY || m == LIE -> healthy()
    fi
}

#define waiting(m) ((up & (m)) && !(acked & (m)))

/* The domain service takes events off the stream: the claim and what it leads to are one commit, the acknowledgement comes behind it. So
 * a process that is killed before the commit has done nothing, and behind it the message comes again.
 * @calls domain/internal/core/rollout UseCases.Apply: In Claim mayReport apply
 */
proctype domain()
{
    byte m;
#if defined(CLAIM_APART) || defined(GRANT_BEHIND_COMMIT)
    {
#endif
end:    do
        :: atomic {
            if
            :: waiting(1) -> m = 1
            :: waiting(2) -> m = 2
            :: waiting(4) -> m = 4
            :: waiting(8) -> m = 8
            :: waiting(AGAIN) -> m = AGAIN
            :: waiting(OWN) -> m = OWN
            :: waiting(HEALTHY) -> m = HEALTHY
            :: waiting(LIE) -> m = LIE
            fi;
#ifdef CLAIM_APART
            if :: claimed & m -> acked = acked | m; m = 0 :: else -> claimed = claimed | m fi };
            atomic { if :: m -> apply(m) :: else fi;
#else
            if
#ifndef NO_CLAIM
            :: claimed & m
            :: !(claimed & m) ->
#else
            :: true ->
#endif
                claimed = claimed | m; apply(m)
            fi;
#endif
            acked = acked | m; m = 0
           }
#ifdef UNLOCKED
        :: atomic { intends & 1 -> intends = intends & 2; if :: asking[ENTRANCE] -> open(ENTRANCE) :: else fi }
        :: atomic { intends & 2 -> intends = intends & 1; if :: asking[WEIGHT] -> open(WEIGHT) :: else fi }
#endif
#ifdef GRANT_BEHIND_COMMIT
        :: atomic { owed -> down = down | owed; owed = 0 }
#endif
        od
#if defined(CLAIM_APART) || defined(GRANT_BEHIND_COMMIT)
    } unless {
        atomic { killed -> killed = false; m = 0;
#ifdef GRANT_BEHIND_COMMIT
            owed = 0;
#endif
            goto end }
    }
#endif
}

/* Those who are asked, one after the other. What the program has requested for itself takes one of them.
 * @calls domain/internal/core/rollout UseCases.resolve: change OpenGate agree decide
 * @calls domain/internal/core/rollout UseCases.agree: requestRow Record answer
 * @calls domain/internal/core/rollout UseCases.change: lockTree standing Refuses
 * @calls domain/internal/core/rollout UseCases.answer: Announce cancel
 */
proctype people()
{
end:
    do
#ifdef OPENS_ENDED
    :: atomic { !aborted && asking[ENTRANCE] && answers < 2 -> answers++; decide() }
#else
    :: atomic { !ended && !aborted && asking[ENTRANCE] && answers < 2 -> answers++;
#ifndef ON_REQUEST_ONLY
        decide()
#endif
       }
#endif
    :: atomic { !ended && !aborted && own == ASKED -> own = GIVEN;
#ifndef ON_REQUEST_ONLY
        decide()
#endif
       }
    :: atomic { !ended && !aborted && asking[ENTRANCE] && answers == 1 -> finish() }      /* rejects */
    od
}

/* What people want besides: each once, the abort twice. Who has aborted retries, or cancels; who holds, resumes.
 * @calls domain/internal/core/rollout UseCases.PauseRollout: change moveRollout
 * @calls domain/internal/core/rollout UseCases.ResumeRollout: change moveRollout decide
 * @calls domain/internal/core/rollout UseCases.AbortRollout: change command
 * @calls domain/internal/core/rollout tree.command: request Command
 * @calls domain/internal/core/rollout UseCases.RetryRollout: lockTree standing Refuses retry
 * @calls domain/internal/core/rollout UseCases.CancelRollout: change cancel
 */
proctype operator()
{
    byte aborts;
    bool held;
end:
    do
    :: atomic { !ended && !held -> held = true; hold = true }
    :: atomic { !ended && hold -> hold = false;
#ifndef DEAF_TO_RESUME
        decide()
#endif
       }
    /* It leaves every gate, and what was approved with it.
     * @go domain/internal/core Hold.Read
     */
    :: atomic {
        !ended && !aborted && aborts < ABORTS ->
        aborts++; aborted = true; asking[ENTRANCE] = false; asking[WEIGHT] = false; answers = 0; own = 0;
        down = down | ABORT(aborts)
       }
    :: atomic { !ended && aborted && epoch == 0 -> aborted = false; epoch = 1; down = down | RETRY }
    :: atomic { !ended && aborted -> finish() }
    :: atomic { !held || aborts < ABORTS -> held = true; aborts = ABORTS }               /* and nobody wants any of it any more */
    od
}

#define suspended (abortedAt && retriedAt <= abortedAt)

/* What the guard answers to an attempt at a change.
 * @calls internal/core/guard Guard.check: Touches Guarded Suspended opensAll
 * @calls internal/core/guard Run.opensAll: opens held
 * @go internal/core/guard Run.Suspended
 * @calls internal/core/guard Run.opens: places
 * @calls internal/core/guard Run.held: leaves
 * @sql internal/store GuardedRun: WHERE p.organization = sqlc.arg(organization) AND p.workflow = sqlc.arg(workflow)
 */
#define allowsBack (enteredAt && !revoked)
#define allowsEntrance (allowsBack && !suspended)
/* @calls internal/core/guard Run.leaves: IsZero After
 */
#ifdef KEEPS_WEIGHTS
#define allowsWeight (allowsEntrance && leftAt)
#else
#define allowsWeight (allowsEntrance && leftAt && (!abortedAt || leftAt > abortedAt))
#endif

/* What is true of them. */
#define aborting (latestAbort > epoch)
#define mayEnter (everOpened(ENTRANCE) && !endReceived && !aborting)
#define mayLeave (mayEnter && (opened[WEIGHT] && latestAbort == 0 || opened[2 + WEIGHT]))

/* Whatever the run tries, it changes nothing without its passage, and nothing more behind an abort or the end. Only here can that
 * become untrue: what is opened stays so.
 */
inline neverMore() { assert(!allowsEntrance || mayEnter); assert(!allowsWeight || mayLeave) }

inline grantStored(gate, e)
{
    if
    :: gate == ENTRANCE && enteredAt < grantTime(e) -> enteredAt = grantTime(e)
    :: gate == WEIGHT && leftAt < grantTime(e) -> leftAt = grantTime(e)
    :: else
    fi;
#ifdef GRANT_REVIVES
    revoked = false
#endif
}

/* What the engine stores of the domain service's reports, in the transaction that stores the report for waits. The later time counts.
 * @calls internal/events Domain.Handle: FromWire CheckSource changeOf ReceiveChange
 * @calls internal/store Store.ReceiveChange: receive ClaimEvent saveChange
 * @sql internal/store SavePassage: WHERE passage.granted_at < excluded.granted_at
 * @sql internal/store SavePassage: ON CONFLICT (organization, workflow, environment, weight)
 * @sql internal/store SaveGuardedRun: revoked = guarded_run.revoked OR excluded.revoked
 * @sql internal/store SaveGuardedRun: aborted_at = greatest(guarded_run.aborted_at, excluded.aborted_at)
 * @sql internal/store SaveGuardedRun: retried_at = greatest(guarded_run.retried_at, excluded.retried_at)
 */
inline stored(m)
{
    if
    :: m == GRANT(ENTRANCE, 0) -> grantStored(ENTRANCE, 0)
    :: m == GRANT(WEIGHT, 0) -> grantStored(WEIGHT, 0)
    :: m == GRANT(ENTRANCE, 1) -> grantStored(ENTRANCE, 1)
    :: m == GRANT(WEIGHT, 1) -> grantStored(WEIGHT, 1)
#ifdef LAST_RECEIVED
    :: m == ABORT(1) || m == ABORT(2) -> abortedAt = 1; retriedAt = 0
    :: m == RETRY -> retriedAt = 9
#else
    :: m == ABORT(1) -> if :: abortedAt < abortTime(1) -> abortedAt = abortTime(1) :: else fi
    :: m == ABORT(2) -> abortedAt = abortTime(2)
    :: m == RETRY -> retriedAt = RETRY_TIME
#endif
    :: m == REVOKED -> revoked = true
    fi;
    if
    :: m == ABORT(1) && latestAbort == 0 -> latestAbort = 1
    :: m == ABORT(2) -> latestAbort = 2
    :: m == REVOKED -> endReceived = true
    :: else
    fi;
    neverMore()
}

#define coming(m) ((down & (m)) && (!(got & (m)) || trouble))

proctype receiver()
{
    byte m;
end:
    do
    :: atomic {
        if
        :: coming(1) -> m = 1
        :: coming(2) -> m = 2
        :: coming(4) -> m = 4
        :: coming(8) -> m = 8
        :: coming(16) -> m = 16
        :: coming(32) -> m = 32
        :: coming(RETRY) -> m = RETRY
        :: coming(REVOKED) -> m = REVOKED
        fi;
        if :: got & m -> trouble-- :: else fi;
#ifdef GUARD_LATER
        got = got | m; unguarded = m; m = 0
#else
        stored(m); got = got | m; m = 0
#endif
       }
#ifdef GUARD_LATER
    ;   atomic { stored(unguarded); unguarded = 0 }
#endif
    od
}

/* The program of the built-in driver's kind: it requests, waits, changes; when it is aborted it takes back, and waits for the retry. */
proctype program()
{
    byte e;
    bool entered, changed;
    {
        if :: up = up | OWN :: up = up | AGAIN :: true fi;
begin:
        if
        :: entered
        :: !entered -> up = up | REQUEST(ENTRANCE, e);
            do
            :: atomic { got & (GRANT(ENTRANCE, 0) | GRANT(ENTRANCE, 1)) -> entered = true; break }
            :: atomic { got & ABORT(e + 1) -> goto taken }
            od
        fi;
        /* An attempt whose answer is lost is made again, and checked again.
         * @calls internal/core/guard Guard.Admit: Lookup check
         * @calls internal/core/guard Guard.Check: Mutates check
         */
        do
        :: atomic { got & ABORT(e + 1) -> goto taken }
        :: atomic {
#ifdef CHECKED_ONCE
            allowsEntrance || effect ->
#else
            allowsEntrance ->
#endif
            assert(mayEnter); changed = true;
            if :: !effect -> effect = true :: true -> break fi
           }
        /* What was granted is refused to an abort and to the end alone. */
        :: atomic { !allowsEntrance -> assert(suspended || revoked); (got & ABORT(e + 1)) -> goto taken }
        od;
        up = up | REQUEST(WEIGHT, e);
        do
        :: atomic { got & ABORT(e + 1) -> goto taken }
        :: atomic { (got & GRANT(WEIGHT, e)) && allowsWeight -> assert(mayLeave); break }
        od;
        up = up | HEALTHY;
        (false);
taken:  /* What it takes back is refused to the end alone. */
        atomic { assert(!changed || allowsBack || revoked); e == 0 && (got & RETRY) -> e = 1; effect = false; changed = false; goto begin }
    } unless {
        /* The run is stopped with its rollout. */
        atomic { got & REVOKED -> e = 0; entered = false; changed = false; effect = false }
    }
}

/* A branch of the run that keeps to nothing; its attempts at changes are in neverMore.
 * @go pkg/event CheckSource
 */
proctype hostile()
{
end:
    if
    :: atomic { !ended -> up = up | LIE }
    :: true                                                                    /* or gives up */
#if defined(NO_SOURCE) || defined(ANY_RUN)
    :: atomic { enteredAt == 0 -> enteredAt = 1; neverMore() }                 /* by what it emits itself, or by the report about another run */
#endif
    fi
}

proctype world()
{
end:
    do
#if defined(CLAIM_APART) || defined(GRANT_BEHIND_COMMIT)
    :: atomic { trouble > 0 -> trouble--; killed = true }
#else
    :: atomic { trouble > 0 && acked -> trouble--; acked = 0 }
#endif
    :: atomic { trouble > 0 -> trouble = 0 }                                   /* and nothing goes wrong any more */
    od
}

#define done (ended && endReceived)

/* When nothing can happen any more, the rollout has ended: whatever was requested was answered. */
proctype watch() { timeout; (done) }

init { atomic { run watch(); run domain(); run people(); run operator(); run receiver(); run program(); run hostile(); run world() } }

ltl progress { <> (done) }
