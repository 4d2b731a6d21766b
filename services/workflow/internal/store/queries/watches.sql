-- name: OpenWatch :execrows
-- Idempotent. An execution that has ended or does not exist gets no watch. After a retry the handle names
-- the attempt.
INSERT INTO watch (id, execution, agent, spec, created_at)
SELECT sqlc.arg(id)::text, execution.id, sqlc.arg(agent)::bigint, sqlc.arg(spec)::json, sqlc.arg(created_at)::timestamptz
FROM execution
WHERE execution.ref = split_part(sqlc.arg(ref)::text, '~', 1) AND execution.state IN ('running', 'parked')
ON CONFLICT (id) DO NOTHING;

-- name: CloseWatch :one
-- Returns the agent, or no row if the execution has no such watch.
DELETE FROM watch USING execution
WHERE watch.id = sqlc.arg(id) AND execution.id = watch.execution AND execution.ref = split_part(sqlc.arg(ref)::text, '~', 1)
RETURNING watch.agent;

-- name: DropEndedWatches :exec
-- Keeps the watches of a run that has failed, because it may be retried; until then they are not wanted.
-- What another process deletes just now is left to it.
DELETE FROM watch WHERE id IN (
    SELECT w.id FROM watch w JOIN execution e ON e.id = w.execution
    WHERE w.agent = ANY (sqlc.arg(agents)::bigint[]) AND e.state NOT IN ('running', 'parked') AND e.state <> 'failed'
    FOR UPDATE OF w SKIP LOCKED
);

-- name: WantedWatches :many
SELECT watch.id, watch.spec
FROM watch JOIN execution ON execution.id = watch.execution
WHERE watch.agent = $1 AND execution.state IN ('running', 'parked')
ORDER BY watch.id;

-- name: WantedIDs :many
SELECT watch.agent, watch.id
FROM watch JOIN execution ON execution.id = watch.execution
WHERE watch.agent = ANY (sqlc.arg(agents)::bigint[]) AND execution.state IN ('running', 'parked')
ORDER BY watch.agent, watch.id;

-- name: FindWatch :one
SELECT watch.agent, watch.spec, execution.organization
FROM watch JOIN execution ON execution.id = watch.execution
WHERE watch.id = $1 AND execution.state IN ('running', 'parked');
