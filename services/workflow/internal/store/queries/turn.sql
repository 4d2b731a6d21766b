-- name: AcquireLease :one
INSERT INTO lease (instance, epoch, until) VALUES ($1, 1, $2)
ON CONFLICT (instance) DO UPDATE SET epoch = lease.epoch + 1, until = excluded.until
RETURNING epoch;

-- name: RenewLease :execrows
UPDATE lease SET until = $3 WHERE instance = $1 AND epoch = $2;

-- name: Claim :many
-- Running executions whose owner is nobody, dead, or this instance without knowing of them. The condition reads columns
-- of the locked row and a constant only: PostgreSQL checks it again when another claim of the row has just committed,
-- which it could not do for those of another table.
--
-- Whoever owned it before and is not this process died with it in hand: that is counted. Those with many crashes are claimed by
-- themselves (core.Claim).
UPDATE execution SET
    owner = sqlc.arg(instance)::text, owner_epoch = sqlc.arg(epoch)::bigint,
    crashes = crashes + CASE WHEN owner IS NULL OR (owner = sqlc.arg(instance)::text AND owner_epoch >= sqlc.arg(epoch)::bigint) THEN 0 ELSE 1 END
WHERE id = ANY (ARRAY(
    SELECT e.id
    FROM runnable r
    JOIN execution e ON e.id = ANY (ARRAY[r.execution])
    WHERE e.state = 0
      AND (e.owner IS NULL OR e.owner = sqlc.arg(instance)::text OR e.owner || '/' || e.owner_epoch <> ALL (
          ARRAY(SELECT l.instance || '/' || l.epoch FROM lease l WHERE l.until > sqlc.arg(now))
      ))
      AND r.execution <> ALL (sqlc.arg(here)::bigint[])
      AND sqlc.arg(suspected)::boolean = (sqlc.arg(suspicious)::int <= e.crashes
          + CASE WHEN e.owner IS NULL OR (e.owner = sqlc.arg(instance)::text AND e.owner_epoch >= sqlc.arg(epoch)::bigint) THEN 0 ELSE 1 END)
      -- A process whose name was taken takes nothing back.
      AND sqlc.arg(epoch)::bigint = (SELECT l.epoch FROM lease l WHERE l.instance = sqlc.arg(instance)::text)
    ORDER BY r.execution
    LIMIT sqlc.arg(most)
    FOR UPDATE OF e SKIP LOCKED
))
RETURNING id, turn, organization, workflow, crashes;

-- name: Absolve :exec
UPDATE execution SET crashes = 0 WHERE id = $1 AND owner = $2 AND owner_epoch = $3 AND crashes > 0;

-- name: Release :exec
-- Gives up everything that a process has in hand.
UPDATE execution SET owner = NULL, owner_epoch = NULL
FROM runnable
WHERE execution.id = ANY (ARRAY[runnable.execution]) AND execution.state = 0 AND execution.owner = $1 AND execution.owner_epoch = $2;

-- name: LoadExecution :one
SELECT id, ref, attempt, organization, workflow, state, error, program, modules, inputs, secrets, labels, turn, wakes, created_at,
    coalesce((SELECT parent FROM trace WHERE trace.execution = execution.id), '')::text AS trace,
    coalesce(g.number, 1)::int AS generation, coalesce(g.base_seq, 0)::bigint AS base_seq, coalesce(g.call, 'null')::json AS call
FROM execution
LEFT JOIN LATERAL (
    SELECT generation.number, generation.base_seq, generation.call FROM generation
    WHERE generation.execution = execution.id ORDER BY generation.number DESC LIMIT 1
) AS g ON true
WHERE id = $1;

-- name: LoadPrograms :many
SELECT digest, source FROM program WHERE digest = ANY (sqlc.arg(digests)::bytea[]);

-- name: TimersOf :many
SELECT branch, op, due FROM timer WHERE execution = $1;

-- name: PollsOf :many
SELECT branch, op, function, round, calling, deadline, value, error FROM poll WHERE execution = $1;

-- name: Arrivals :many
-- Where an execution stands, and what came for its open operations: events and answers in the order in which they came, then
-- timers by time. Where nothing came, one row of kind -1.
SELECT x.wakes, x.state, coalesce(a.branch, 0)::int AS branch, coalesce(a.op, 0)::int AS op, coalesce(a.kind, -1)::smallint AS kind, a.value, a.error, a.event, a.event_id, a.source, a.type, a.data, a.occurred_at
FROM execution x
LEFT JOIN (
    SELECT d.execution, d.branch, d.op, d.kind, d.value, d.error, d.event, d.arrived AS place, 'epoch'::timestamptz AS due,
        e.event_id, e.source, e.type, e.data, e.occurred_at
    FROM delivery d
    LEFT JOIN event e ON e.id = ANY (ARRAY[d.event])
    UNION ALL
    SELECT t.execution, t.branch, t.op, 2::smallint, NULL, NULL, NULL, 9223372036854775807, t.due, NULL, NULL, NULL, NULL, NULL
    FROM timer t
    WHERE t.fired
) AS a ON a.execution = x.id
WHERE x.id = sqlc.arg(execution)
ORDER BY a.place, a.due, a.branch, a.op;

-- name: LockExecution :one
SELECT id, ref, state, last_seq, start_event, organization, workflow FROM execution WHERE id = $1 FOR UPDATE;

-- name: LockWorkflow :one
SELECT id, ref, attempt, state, last_seq FROM execution WHERE organization = $1 AND workflow = $2 FOR UPDATE;

