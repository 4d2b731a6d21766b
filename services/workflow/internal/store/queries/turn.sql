-- name: AcquireLease :one
INSERT INTO lease (instance, epoch, payloads, until) VALUES (sqlc.arg(instance), 1, 1, sqlc.arg(until))
ON CONFLICT (instance) DO UPDATE SET epoch = lease.epoch + 1, payloads = lease.epoch + 1, until = excluded.until,
    unexplained = NOT lease.ended AND lease.trial IS NULL, ended = false, trial = NULL
RETURNING epoch, EXISTS (
    SELECT FROM lease l WHERE l.instance <> sqlc.arg(instance)::text AND l.until > sqlc.arg(now)::timestamptz AND l.payloads <> l.epoch
) AS older;

-- name: Exonerate :exec
-- If the previous process of this name died while it tried no suspect, something else kills processes: suspects that no living process
-- owns are set back to the first suspicious count. The caller's own name has a new epoch by now.
UPDATE execution SET crashes = sqlc.arg(suspicious)::int, owner = NULL, owner_epoch = NULL
FROM runnable
WHERE execution.id = ANY (ARRAY[runnable.execution]) AND execution.state = 'running' AND execution.crashes >= sqlc.arg(suspicious)::int
  AND (execution.owner IS NULL OR execution.owner || '/' || execution.owner_epoch <> ALL (
      ARRAY(SELECT l.instance || '/' || l.epoch FROM lease l WHERE l.until > sqlc.arg(now)::timestamptz)
  ))
  AND EXISTS (SELECT FROM lease l WHERE l.instance = sqlc.arg(instance)::text AND l.epoch = sqlc.arg(epoch)::bigint AND l.unexplained);

-- name: TryExecution :exec
UPDATE lease SET trial = sqlc.narg(execution) WHERE instance = sqlc.arg(instance) AND epoch = sqlc.arg(epoch);

-- name: EndLease :exec
UPDATE lease SET ended = true WHERE instance = $1 AND epoch = $2;

-- name: Due :one
-- Whether the lease is still the caller's, which it extends where a time is given, and whether there is work that no process may have been
-- notified of. It is asked every second on behalf of all loops of the service, so each part of it is a look at the end of an index. The
-- condition on executions is that of Claim, for suspects and others.
WITH renewed AS (
    UPDATE lease SET until = sqlc.narg(until)::timestamptz
    WHERE lease.instance = sqlc.arg(instance)::text AND lease.epoch = sqlc.arg(epoch)::bigint AND sqlc.narg(until)::timestamptz IS NOT NULL
)
SELECT
    EXISTS (SELECT FROM lease l WHERE l.instance = sqlc.arg(instance)::text AND l.epoch = sqlc.arg(epoch)::bigint) AS ours,
    EXISTS (
        SELECT FROM runnable r
        JOIN execution e ON e.id = ANY (ARRAY[r.execution])
        WHERE e.state = 'running'
          AND (e.owner IS NULL OR e.owner = sqlc.arg(instance)::text OR e.owner || '/' || e.owner_epoch <> ALL (
              ARRAY(SELECT l.instance || '/' || l.epoch FROM lease l WHERE l.until > sqlc.arg(now)::timestamptz)
          ))
          AND r.execution <> ALL (sqlc.arg(here)::bigint[])
          AND (r.not_before IS NULL OR r.not_before <= sqlc.arg(now)::timestamptz OR r.not_before > sqlc.arg(now)::timestamptz + interval '65 minutes')
    ) AS executions,
    EXISTS (SELECT FROM timer t WHERE NOT t.fired AND t.due < sqlc.arg(soon)::timestamptz) AS timers,
    EXISTS (SELECT FROM call c WHERE c.next_at <= sqlc.arg(now)::timestamptz AND c.deadline > sqlc.arg(now)::timestamptz) AS calls,
    EXISTS (SELECT FROM child WHERE child.orphaned) AS orphans,
    -- Whether a live process is of a release that does not know payloads.
    EXISTS (SELECT FROM lease l WHERE l.until > sqlc.arg(now)::timestamptz AND l.payloads <> l.epoch) AS older,
    EXISTS (SELECT FROM flow_work w WHERE w.next_at <= sqlc.arg(now)::timestamptz) AS flows;

-- name: Claim :many
-- Claims running executions that have no owner, a dead one, or this instance without its knowledge: those of each organization in turn, the
-- oldest first, so that none waits for all that a crash has left of another. Of each organization no more are read than several processes
-- that claim at the same time may take. The condition on the locked row reads its columns and a constant only: PostgreSQL checks it again
-- when another claim of the row has just committed, which it could not do for those of another table.
--
-- A previous owner that is not this process died while it owned the execution: that is counted. Executions with many crashes are claimed
-- by themselves (engine.Claim). A run is held for an hour at most, so a later time was written by a clock that was ahead, and is ignored. A new owner also increments the turn: the previous owner's memory may be stale.
WITH RECURSIVE tenants AS (
    (SELECT r.organization FROM runnable r ORDER BY r.organization LIMIT 1)
    UNION ALL
    SELECT n.organization FROM tenants t CROSS JOIN LATERAL (
        SELECT r.organization FROM runnable r WHERE r.organization > t.organization ORDER BY r.organization LIMIT 1
    ) AS n
), orphans AS (
    SELECT c.id, row_number() OVER (PARTITION BY tenants.organization ORDER BY c.id) AS place
    FROM tenants CROSS JOIN LATERAL (
        SELECT e.id
        FROM runnable r
        JOIN execution e ON e.id = ANY (ARRAY[r.execution])
        WHERE r.organization = tenants.organization AND e.state = 'running'
          AND (e.owner IS NULL OR e.owner = sqlc.arg(instance)::text OR e.owner || '/' || e.owner_epoch <> ALL (
              ARRAY(SELECT l.instance || '/' || l.epoch FROM lease l WHERE l.until > sqlc.arg(now))
          ))
          AND r.execution <> ALL (sqlc.arg(here)::bigint[])
          AND (r.not_before IS NULL OR r.not_before <= sqlc.arg(now)::timestamptz OR r.not_before > sqlc.arg(now)::timestamptz + interval '65 minutes')
          AND sqlc.arg(suspected)::boolean = (sqlc.arg(suspicious)::int <= e.crashes
              + CASE WHEN e.owner IS NULL OR (e.owner = sqlc.arg(instance)::text AND e.owner_epoch >= sqlc.arg(epoch)::bigint) THEN 0 ELSE 1 END)
        ORDER BY r.execution
        LIMIT 1 + 8 * sqlc.arg(most)::bigint / (SELECT count(*) FROM tenants)
    ) AS c
)
UPDATE execution SET
    turn = turn + CASE WHEN owner = sqlc.arg(instance)::text AND owner_epoch = sqlc.arg(epoch)::bigint THEN 0 ELSE 1 END,
    owner = sqlc.arg(instance)::text, owner_epoch = sqlc.arg(epoch)::bigint,
    crashes = crashes + CASE WHEN owner IS NULL OR (owner = sqlc.arg(instance)::text AND owner_epoch >= sqlc.arg(epoch)::bigint) THEN 0 ELSE 1 END
WHERE id = ANY (ARRAY(
    SELECT e.id
    FROM orphans
    JOIN execution e ON e.id = ANY (ARRAY[orphans.id])
    WHERE e.state = 'running'
      AND (e.owner IS NULL OR e.owner = sqlc.arg(instance)::text OR e.owner || '/' || e.owner_epoch <> ALL (
          ARRAY(SELECT l.instance || '/' || l.epoch FROM lease l WHERE l.until > sqlc.arg(now))
      ))
      AND sqlc.arg(suspected)::boolean = (sqlc.arg(suspicious)::int <= e.crashes
          + CASE WHEN e.owner IS NULL OR (e.owner = sqlc.arg(instance)::text AND e.owner_epoch >= sqlc.arg(epoch)::bigint) THEN 0 ELSE 1 END)
      -- A process whose name another has taken over claims nothing.
      AND sqlc.arg(epoch)::bigint = (SELECT l.epoch FROM lease l WHERE l.instance = sqlc.arg(instance)::text)
    ORDER BY orphans.place, orphans.id
    LIMIT sqlc.arg(most)
    FOR UPDATE OF e SKIP LOCKED
))
RETURNING id, turn, organization, workflow, crashes;

-- name: Hold :many
-- A row that is locked is skipped: its execution parks, ends or is woken. So this waits for nobody.
UPDATE runnable SET not_before = u.until
FROM (SELECT unnest(sqlc.arg(executions)::bigint[]) AS execution, unnest(sqlc.arg(untils)::timestamptz[]) AS until) AS u
WHERE runnable.execution = u.execution AND runnable.execution = ANY (ARRAY(
    SELECT r.execution FROM runnable r
    JOIN execution e ON e.id = ANY (ARRAY[r.execution])
    WHERE r.execution = ANY (sqlc.arg(executions)::bigint[])
      AND e.owner = sqlc.arg(instance)::text AND e.owner_epoch = sqlc.arg(epoch)::bigint
    FOR UPDATE OF r SKIP LOCKED
))
RETURNING runnable.execution;

-- name: Absolve :exec
UPDATE execution SET crashes = 0 WHERE id = $1 AND owner = $2 AND owner_epoch = $3 AND crashes > 0;

-- name: Release :exec
-- Releases all executions that a process owns.
UPDATE execution SET owner = NULL, owner_epoch = NULL
FROM runnable
WHERE execution.id = ANY (ARRAY[runnable.execution]) AND execution.state = 'running' AND execution.owner = $1 AND execution.owner_epoch = $2;

-- name: LoadMany :many
SELECT id, ref, attempt, organization, workflow, state, program, modules, inputs, secrets,
    greatest(last_seq, (SELECT max(entry.seq) FROM entry WHERE entry.execution = execution.id))::bigint AS last_seq, turn, wakes, created_at,
    coalesce((SELECT parent FROM trace WHERE trace.execution = execution.id), '')::text AS trace,
    coalesce(g.number, 1)::int AS generation, coalesce(g.base_seq, 0)::bigint AS base_seq, coalesce(g.call, 'null')::json AS call,
    coalesce(g.held_until, 'epoch')::timestamptz AS held_until, coalesce(g.before, 'epoch')::timestamptz AS before
FROM execution
LEFT JOIN LATERAL (
    SELECT generation.number, generation.base_seq, generation.call, generation.held_until, (
        -- When the generation began before which pace more may begin, the next one included.
        SELECT earlier.began_at FROM generation earlier
        WHERE earlier.execution = execution.id AND earlier.number = generation.number + 1 - sqlc.arg(pace)::int
    ) AS before FROM generation
    WHERE generation.execution = execution.id ORDER BY generation.number DESC LIMIT 1
) AS g ON true
WHERE id = ANY (sqlc.arg(ids)::bigint[]);

-- name: Histories :many
-- The entries of executions behind those with the given numbers.
SELECT n.execution, n.seq, n.branch, n.op, n.kind, n.name, n.hash, n.value, n.error, n.event, n.recorded_at, n.tries
FROM (SELECT unnest(sqlc.arg(executions)::bigint[]) AS execution, unnest(sqlc.arg(bases)::bigint[]) AS base) AS u
JOIN entry n ON n.execution = ANY (ARRAY[u.execution]) AND n.seq > u.base
ORDER BY n.execution, n.seq;

-- name: LoadPrograms :many
SELECT digest, source FROM program WHERE digest = ANY (sqlc.arg(digests)::bytea[]);

-- name: Standings :many
-- The counters and states of executions, and the arrivals for their open operations: events and answers in order of arrival, then
-- timers by time. An execution without arrivals has one row of kind -1. With everything, timers that have not fired are rows of kind -2,
-- and the timer of a poll has the poll's progress beside it: everything that is open has a timer.
SELECT x.id AS execution, x.wakes, x.state, coalesce(a.branch, 0)::int AS branch, coalesce(a.op, 0)::int AS op, coalesce(a.kind, -1)::smallint AS kind,
    a.value, a.error, a.event, a.event_id, a.source, a.type, a.data, a.occurred_at,
    coalesce(a.due, 'epoch')::timestamptz AS due, a.polled, a.round, a.calling, a.deadline, a.seen, a.problem,
    a.tries
FROM execution x
LEFT JOIN LATERAL (
    SELECT d.branch, d.op, d.kind, d.value, d.error, d.event, d.arrived AS place, 'epoch'::timestamptz AS due,
        e.event_id, e.source, e.type, e.data, e.occurred_at,
        NULL::text AS polled, NULL::int AS round, NULL::boolean AS calling, NULL::timestamptz AS deadline, NULL::json AS seen, NULL::json AS problem,
        d.tries
    FROM delivery d
    LEFT JOIN event e ON e.id = ANY (ARRAY[d.event])
    WHERE d.execution = x.id
    UNION ALL
    SELECT t.branch, t.op, CASE WHEN t.fired THEN 2 ELSE -2 END::smallint, NULL, NULL, NULL, 9223372036854775807, t.due, NULL, NULL, NULL, NULL, NULL,
        p.function, p.round, p.calling, p.deadline, p.value, p.error, NULL
    FROM timer t
    LEFT JOIN poll p ON sqlc.arg(everything)::boolean AND p.execution = ANY (ARRAY[t.execution]) AND p.branch = t.branch AND p.op = t.op
    WHERE t.execution = x.id AND (t.fired OR sqlc.arg(everything)::boolean)
) AS a ON true
WHERE x.id = ANY (sqlc.arg(ids)::bigint[])
ORDER BY x.id, a.place, a.due, a.branch, a.op;

-- name: LockExecution :exec
SELECT FROM execution WHERE id = $1 FOR UPDATE;

-- name: ExecutionID :many
SELECT id FROM execution WHERE organization = $1 AND workflow = $2;

-- name: LockWorkflow :one
SELECT id, ref, attempt, state FROM execution WHERE organization = $1 AND workflow = $2 FOR UPDATE;

-- name: LastEntry :one
-- The end of the history: what the row says, or what turns have recorded since that left the row as it was (HoldTurns).
SELECT greatest(last_seq, (SELECT max(entry.seq) FROM entry WHERE entry.execution = execution.id))::bigint AS seq FROM execution WHERE id = $1;

