-- name: AcquireLease :one
INSERT INTO lease (instance, epoch, until) VALUES ($1, 1, $2)
ON CONFLICT (instance) DO UPDATE SET epoch = lease.epoch + 1, until = excluded.until
RETURNING epoch;

-- name: RenewLease :execrows
UPDATE lease SET until = $3 WHERE instance = $1 AND epoch = $2;

-- name: Claim :many
-- Running executions whose owner is nobody, dead, or this instance without knowing of them. The condition reads columns
-- of the locked row and a constant only: PostgreSQL checks it again when another claim of the row has just committed,
-- which it could not do for a join.
UPDATE execution SET owner = sqlc.arg(instance), owner_epoch = sqlc.arg(epoch)::bigint
WHERE id IN (
    SELECT e.id
    FROM execution e
    WHERE e.state = 0
      AND (e.owner IS NULL OR e.owner = sqlc.arg(instance) OR e.owner || '/' || e.owner_epoch <> ALL (
          ARRAY(SELECT l.instance || '/' || l.epoch FROM lease l WHERE l.until > sqlc.arg(now))
      ))
      AND e.id <> ALL (sqlc.arg(live)::bigint[])
    ORDER BY e.id
    LIMIT sqlc.arg(most)
    FOR UPDATE SKIP LOCKED
)
RETURNING id;

-- name: LoadExecution :one
-- After a retry the handle says so, and with it every activity id that is made of it.
SELECT id, (CASE WHEN attempt > 1 THEN ref || '~' || attempt ELSE ref END)::text AS ref, organization, workflow, state, error, program, modules, inputs, secrets, labels, turn, wakes, created_at
FROM execution
WHERE id = $1;

-- name: LoadPrograms :many
SELECT digest, source FROM program WHERE digest = ANY (sqlc.arg(digests)::bytea[]);

-- name: OpenTimers :many
SELECT branch, op, due FROM timer WHERE execution = $1;

-- name: WakesOf :one
SELECT wakes, state, turn FROM execution WHERE id = $1;

-- name: Arrivals :many
-- What came for open operations: events and answers in the order in which they came, then timers by time.
SELECT d.branch, d.op, d.kind, d.value, d.error, d.event, d.arrived AS place, 'epoch'::timestamptz AS due,
    e.event_id, e.source, e.type, e.data, e.occurred_at
FROM delivery d
LEFT JOIN event e ON e.id = d.event
WHERE d.execution = sqlc.arg(execution)
UNION ALL
SELECT t.branch, t.op, 2::smallint, NULL, NULL, NULL, 9223372036854775807, t.due, NULL, NULL, NULL, NULL, NULL
FROM timer t
WHERE t.execution = sqlc.arg(execution) AND t.fired
ORDER BY place, due;

-- name: EndTurn :one
-- The fence: the turn must be the one that was loaded, and the owner must be the caller. An execution to which
-- something has come since it was loaded does not park.
UPDATE execution SET
    turn = turn + 1,
    last_seq = sqlc.arg(last_seq),
    state = CASE WHEN sqlc.arg(next)::smallint = 1 AND wakes <> sqlc.arg(wakes) THEN 0 ELSE sqlc.arg(next)::smallint END,
    owner = CASE WHEN sqlc.arg(next)::smallint = 0 OR (sqlc.arg(next)::smallint = 1 AND wakes <> sqlc.arg(wakes)) THEN owner END,
    owner_epoch = CASE WHEN sqlc.arg(next)::smallint = 0 OR (sqlc.arg(next)::smallint = 1 AND wakes <> sqlc.arg(wakes)) THEN owner_epoch END,
    error = sqlc.arg(error),
    ended_at = CASE WHEN sqlc.arg(next)::smallint >= 2 THEN sqlc.arg(now)::timestamptz END
WHERE id = sqlc.arg(id) AND turn = sqlc.arg(turn) AND state = 0
  AND owner = sqlc.arg(owner)::text AND owner_epoch = sqlc.arg(epoch)::bigint
RETURNING turn, state, last_seq;

-- name: LockExecution :one
SELECT id, ref, state, last_seq, start_event, organization, workflow FROM execution WHERE id = $1 FOR UPDATE;

-- name: LockWorkflow :one
SELECT id, (CASE WHEN attempt > 1 THEN ref || '~' || attempt ELSE ref END)::text AS ref, state, last_seq FROM execution WHERE organization = $1 AND workflow = $2 FOR UPDATE;

-- name: Wake :exec
UPDATE execution SET wakes = wakes + 1, state = 0 WHERE id = $1 AND state IN (0, 1);

-- name: AppendEntries :copyfrom
INSERT INTO entry (execution, seq, branch, op, kind, name, hash, value, error, event, recorded_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: CloseTimers :exec
DELETE FROM timer
USING (SELECT unnest(sqlc.arg(branches)::int[]) AS branch, unnest(sqlc.arg(ops)::int[]) AS op) AS c
WHERE timer.execution = sqlc.arg(execution) AND timer.branch = c.branch AND timer.op = c.op;

-- name: CloseWaits :exec
DELETE FROM wait
USING (SELECT unnest(sqlc.arg(branches)::int[]) AS branch, unnest(sqlc.arg(ops)::int[]) AS op) AS c
WHERE wait.execution = sqlc.arg(execution) AND wait.branch = c.branch AND wait.op = c.op;

-- name: CloseCalls :exec
DELETE FROM call
USING (SELECT unnest(sqlc.arg(branches)::int[]) AS branch, unnest(sqlc.arg(ops)::int[]) AS op) AS c
WHERE call.execution = sqlc.arg(execution) AND call.branch = c.branch AND call.op = c.op;

-- name: CloseDeliveries :exec
DELETE FROM delivery
USING (SELECT unnest(sqlc.arg(branches)::int[]) AS branch, unnest(sqlc.arg(ops)::int[]) AS op) AS c
WHERE delivery.execution = sqlc.arg(execution) AND delivery.branch = c.branch AND delivery.op = c.op;

-- name: DropTimers :exec
DELETE FROM timer WHERE execution = $1;

-- name: DropWaits :exec
DELETE FROM wait WHERE execution = $1;

-- name: DropCalls :exec
DELETE FROM call WHERE execution = $1;

-- name: DropDeliveries :exec
DELETE FROM delivery WHERE execution = $1;

-- name: OpenTimer :copyfrom
INSERT INTO timer (execution, branch, op, due) VALUES ($1, $2, $3, $4);

-- name: OpenCall :copyfrom
INSERT INTO call (id, execution, branch, op, function, args, location, agent, no_retry, next_at, deadline)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: OpenWait :copyfrom
INSERT INTO wait (execution, branch, op, key, shape, type, filter, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: OpenChannel :copyfrom
INSERT INTO channel (token, execution, organization) VALUES ($1, $2, $3);

-- name: DropChannels :exec
DELETE FROM channel WHERE execution = $1;
