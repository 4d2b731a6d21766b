/* However often a workflow's id is started, by any caller, and whichever process dies: there is one run, and all answers are true.
 *
 * Three callers start one id, two of them with the same content. One process gathers what comes at the same time into one transaction,
 * another is asked for one at a time. A caller without an answer asks again, the other process too, while the first may still be at it. The run begins in the process
 * that stored it, or another one finds it.
 *
 * README.md says how to read this, what is left out, and what the words behind @ are.
 *
 * @mutant LOOK_THEN_INSERT assertion: without the key of (organization, workflow) two that look at the same time both store
 * @mutant ANSWER_FIRST assertion: an answer before the commit promises a run that there may never be
 * @mutant NO_COMPARISON assertion: a caller that starts something else is answered that it runs
 * @mutant GUESS assertion: a commit of unknown outcome is answered as if it were done
 * @mutant NO_LOOK_OUT blocked: a run whose process died behind the commit is begun by nobody
 * @mutant NO_ASKING_AGAIN blocked: whose answer is lost never gets one
 */
#define CALLERS 3
#define content(c) ((c) / 2 + 1)  /* 0 and 1 start the same, 2 something else */
#define NOBODY 9
#define DEAD 3

mtype = { NONE, FOUND, CREATED, CONFLICT }

/* --- stored --- */
byte rows;                       /* how many executions have the id */
byte stored;                     /* what the execution is started with */
byte owner;                      /* execution.owner and owner_epoch: a process's number + 1; DEAD, one that was killed; 0, nobody */
bool runnable;                   /* runnable */

/* --- not stored --- */
byte keyLock;                    /* who has inserted the key and not committed; another's insertion waits for that */
mtype answer[CALLERS] = NONE;
byte firsts;                     /* how many got the answer CREATED */
#ifdef NO_ASKING_AGAIN
bool once[CALLERS];
#endif
byte ran;                        /* with what the run was begun */
bool killed[2];
byte kills = 1;                  /* how often a process may still be killed, */
byte breaks = 1;                 /* a connection broken */

inline reply(c, with)
{
    if
    :: answer[c] == NONE ->
        answer[c] = with;
        /* A caller can rely on its answer. */
        assert(rows == 1);
        assert((stored == content(c)) == (with != CONFLICT));
        /* At most one gets the answer that it created the run. */
        if :: with == CREATED -> firsts++ :: else fi;
        assert(firsts <= 1)
    :: else
    fi
}

/* COMMIT of a transaction that has inserted the execution for a caller.
 * @text internal/store/migrations/1002_executions.sql CONSTRAINT execution_once UNIQUE (organization, workflow)
 * @sql internal/store CreateExecutions: INSERT INTO runnable
 * @sql internal/store BeginExecutions: INSERT INTO runnable
 */
inline commitStart(p, who)
{
    if
    :: first != NOBODY -> rows++; stored = content(first); runnable = true; owner = who
    :: else
    fi;
    if :: keyLock == p + 1 -> keyLock = 0 :: else fi;
    ready = false;
    /* The id is one run's. */
    assert(rows <= 1)
}

#ifndef NO_ASKING_AGAIN
#define asks(c) (answer[c] == NONE)
#else
#define asks(c) (answer[c] == NONE && !once[c])
#endif
#define in(c) ((batch >> (c)) & 1)
#define lowest ((in(0)) -> 0 : ((in(1)) -> 1 : 2))

/* Starts at one process.
 * @calls internal/core/control Service.start: Reserve Ahead create Begin Release Wake Digests Differences
 */
proctype server(byte p)
{
    byte batch, first = NOBODY;
    bool begin, keeps, ready;
endAgain:
    {
end:    do
        /* A caller without an answer may be here, and at the other process, too.
         * @calls internal/store group.run: take settle
         */
        :: atomic {
            if :: asks(0) -> batch = 1 :: asks(1) -> batch = 2 :: asks(2) -> batch = 4 fi;
            if :: p == 0 && asks(0) -> batch = batch | 1 :: true fi;
            if :: p == 0 && asks(1) -> batch = batch | 2 :: true fi;
            if :: p == 0 && asks(2) -> batch = batch | 4 :: true fi;
#ifdef NO_ASKING_AGAIN
            once[0] = once[0] || in(0); once[1] = once[1] || in(1); once[2] = once[2] || in(2);
#endif
            /* With its first turn, or alone; kept for this process, or for any with room.
             * @calls internal/core/engine Engine.Ahead: first Begin
             * @calls internal/core/engine scheduler.reserve: Lock
             */
            if :: begin = true :: begin = false fi;
            if :: keeps = true :: begin == false -> keeps = false fi
           };
#ifdef LOOK_THEN_INSERT
            first = (rows == 0 -> lowest : NOBODY);
            ready = true;
#else
transaction:
            /* @calls internal/store Store.beginAll: commit refused
             * @calls internal/store Store.saveBegins: BeginExecutions
             * @calls internal/store Store.createAll: CreateExecutions existing
             * @sql internal/store CreateExecutions: ON CONFLICT ON CONSTRAINT execution_once DO NOTHING
             */
            atomic {
                keyLock == 0;
                if
                :: rows == 0 -> first = lowest; keyLock = p + 1
                :: rows > 0 && begin -> begin = false; goto transaction      /* refused; then alone */
                :: rows > 0 && !begin -> first = NOBODY
                fi;
                ready = true
            };
#endif
#ifdef ANSWER_FIRST
            atomic { if :: first != NOBODY -> reply(first, CREATED) :: else fi };
#endif
            if
            :: atomic { commitStart(p, keeps * (p + 1)) };
                /* @calls internal/core/engine Engine.Begin: begin
                 * @calls internal/store existing: findStarts
                 */
                atomic {
                    if
                    :: first != NOBODY ->
                        if :: keeps && owner == p + 1 && runnable -> ran = content(first); runnable = false :: true fi;
                        reply(first, CREATED);
                        batch = batch & (255 - (1 << first))
                    :: else
                    fi
                };
                /* @calls internal/core/execution Digests.Differences: append
                 * @go internal/core/execution Conflict
                 */
                atomic {
                    if
                    :: batch && begin -> skip                                  /* those behind the first are refused, and come alone */
                    :: batch && !begin ->
#ifdef NO_COMPARISON
                        if :: in(0) -> reply(0, FOUND) :: else fi; if :: in(1) -> reply(1, FOUND) :: else fi; if :: in(2) -> reply(2, FOUND) :: else fi
#else
                        if :: in(0) && stored == content(0) -> reply(0, FOUND) :: in(0) && stored != content(0) -> reply(0, CONFLICT) :: else fi;
                        if :: in(1) && stored == content(1) -> reply(1, FOUND) :: in(1) && stored != content(1) -> reply(1, CONFLICT) :: else fi;
                        if :: in(2) && stored == content(2) -> reply(2, FOUND) :: in(2) && stored != content(2) -> reply(2, CONFLICT) :: else fi
#endif
                    :: else
                    fi
                }
            /* Nobody knows: an error for all of them.
             * @calls internal/store group.settle: attempt
             */
            :: atomic { breaks > 0 -> breaks--;
                if :: true -> commitStart(p, keeps * (p + 1)) :: true -> if :: keyLock == p + 1 -> keyLock = 0 :: else fi; ready = false fi;
#ifdef GUESS
                if :: first != NOBODY -> reply(first, CREATED) :: else fi
#endif
               }
            fi;
            atomic { batch = 0; first = NOBODY; begin = false; keeps = false }
        od
    } unless {
        atomic {
            killed[p] ->
            if :: ready -> commitStart(p, keeps * DEAD) :: true -> if :: keyLock == p + 1 -> keyLock = 0 :: else fi; ready = false fi;
            batch = 0; first = NOBODY; begin = false; keeps = false;
            killed[p] = false; goto endAgain
        }
    }
}

/* What was stored and not begun is found: by its process, or when the lease of that has run out.
 * @sql internal/store Due: FROM runnable r
 * @sql internal/store Claim: e.owner IS NULL OR e.owner = sqlc.arg(instance)::text
 */
proctype lookout()
{
end:
#ifndef NO_LOOK_OUT
    atomic {
        runnable ->
        /* The run is of what it was started with. */
        assert(ran == 0);
        ran = stored; runnable = false
    }
#else
    atomic { runnable && owner == 0 -> ran = stored; runnable = false }
#endif
}

/* A process is killed; its successor begins with nothing. */
proctype killer()
{
    byte p;
end:
    do
    :: atomic {
        kills > 0 ->
        kills--;
        if :: p = 0 :: p = 1 fi;
        killed[p] = true;
        if :: owner == p + 1 -> owner = DEAD :: else fi;
        p = 0
       }
    :: atomic { kills > 0 -> kills = 0 }                                       /* and nobody is any more */
    od
}

#define done (rows == 1 && ran == stored && answer[0] != NONE && answer[1] != NONE && answer[2] != NONE)

/* When nothing can happen any more, everybody has an answer, and the run has begun. */
proctype watch() { timeout; (done) }

init { atomic { run watch(); run server(0); run server(1); run lookout(); run killer() } }

ltl progress { <> (done) }
