-- name: OpenWatch :execrows
-- A repeat changes nothing; an execution that has ended, or that nobody knows, gets none. After a retry the handle says
-- which attempt it is.
INSERT INTO watch (id, execution, agent, spec, created_at)
SELECT sqlc.arg(id)::text, execution.id, sqlc.arg(agent)::bigint, sqlc.arg(spec)::json, sqlc.arg(created_at)::timestamptz
FROM execution
WHERE execution.ref = split_part(sqlc.arg(ref)::text, '~', 1) AND execution.state < 2
ON CONFLICT (id) DO NOTHING;

-- name: CloseWatch :one
-- Answers the agent, or no row when there is no such watch of that execution.
DELETE FROM watch USING execution
WHERE watch.id = sqlc.arg(id) AND execution.id = watch.execution AND execution.ref = split_part(sqlc.arg(ref)::text, '~', 1)
RETURNING watch.agent;

-- name: DropEndedWatches :exec
-- Those of a run that has failed are kept, and not wanted: it may be retried.
DELETE FROM watch USING execution
WHERE watch.agent = $1 AND execution.id = watch.execution AND execution.state >= 2 AND execution.state <> 3;

-- name: WantedWatches :many
SELECT watch.id, watch.spec
FROM watch JOIN execution ON execution.id = watch.execution
WHERE watch.agent = $1 AND execution.state < 2
ORDER BY watch.id;

-- name: FindWatch :one
SELECT watch.agent, watch.spec, execution.organization
FROM watch JOIN execution ON execution.id = watch.execution
WHERE watch.id = $1 AND execution.state < 2;
