-- name: SaveObserver :execrows
-- Registering the same observer again is a no-op, which keeps its last report. After another registration, what is observed is news even if it
-- is as before: it is about what was deployed meanwhile. The time stays, as reports that are late are to change nothing.
INSERT INTO observer AS o (organization, key, agent, spec, created_at)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (organization, key) DO UPDATE
SET version = o.version + 1, agent = excluded.agent, spec = excluded.spec, report = NULL
WHERE o.agent <> excluded.agent OR o.spec::text <> excluded.spec::text;

-- name: ObserversOf :many
SELECT agent, organization, key, version, spec FROM observer WHERE agent = ANY (sqlc.arg(agents)::bigint[]) ORDER BY agent, organization, key;

-- name: FindObserver :one
SELECT spec, agent, version, report, reported_at FROM observer WHERE organization = $1 AND key = $2;

-- name: SaveReport :many
-- Returns no row if another process has stored a report, or the observer was registered anew, since it was read.
UPDATE observer SET report = sqlc.arg(report), reported_at = sqlc.arg(at)
WHERE organization = sqlc.arg(organization) AND key = sqlc.arg(key) AND version = sqlc.arg(version)
  AND reported_at IS NOT DISTINCT FROM sqlc.narg(before)
RETURNING version;

-- name: SaveBeats :exec
-- In the order of the agents, so that two services wait for each other's rows in one direction only. Times are not compared: the clocks of
-- services differ, and the next heartbeat follows within seconds.
INSERT INTO agent (id, seen_at, reachable, message)
SELECT b.id, b.seen_at, b.reachable, b.message
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(seen)::timestamptz[]) AS seen_at,
    unnest(sqlc.arg(reachable)::boolean[]) AS reachable, unnest(sqlc.arg(messages)::text[]) AS message) b
ORDER BY b.id
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, reachable = excluded.reachable, message = excluded.message;

-- name: ObserversOfAgents :many
-- The observers of agents themselves, with the agent's newest heartbeat.
SELECT o.organization, o.key, o.agent, o.spec, o.version, o.created_at, o.report, o.reported_at, agent.seen_at, agent.reachable, agent.message
FROM observer o LEFT JOIN agent ON agent.id = o.agent
WHERE o.key LIKE 'agent/%'
ORDER BY o.organization, o.key;
