-- name: SaveEvent :one
-- Answers no row for a duplicate.
INSERT INTO event (organization, source, event_id, type, data, occurred_at, received_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT ON CONSTRAINT event_once DO NOTHING
RETURNING id;

-- name: FindEvent :one
SELECT id, organization, type, data FROM event WHERE id = $1;

-- name: ShapesOf :many
SELECT id, paths, filled FROM shape WHERE organization = $1 AND type = $2 ORDER BY id;

-- name: SaveShape :exec
INSERT INTO shape (organization, type, paths) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- name: FindShape :one
SELECT id FROM shape WHERE organization = $1 AND type = $2 AND paths = $3;

-- name: ShapeOfWaits :many
-- The shapes of an execution's waits for which older events have no keys yet.
SELECT DISTINCT shape.id, shape.organization, shape.type, shape.paths
FROM wait JOIN shape ON shape.id = wait.shape
WHERE wait.execution = $1 AND NOT shape.filled
ORDER BY shape.id;

-- name: EventsOfType :many
SELECT id, data FROM event WHERE organization = $1 AND type = $2 AND id > $3 ORDER BY id LIMIT $4;

-- name: ShapeFilled :exec
UPDATE shape SET filled = true WHERE id = $1;

-- name: SaveKeys :exec
INSERT INTO event_key (key, event)
SELECT unnest(sqlc.arg(keys)::bytea[]), unnest(sqlc.arg(events)::bigint[])
ON CONFLICT DO NOTHING;

-- name: WaitsForEvent :many
-- The open waits that an event could satisfy, by its keys.
SELECT DISTINCT wait.execution, wait.branch, wait.op
FROM event_key JOIN wait ON wait.key = event_key.key
WHERE event_key.event = $1
ORDER BY wait.execution, wait.branch, wait.op;

-- name: WaitsToLook :many
SELECT DISTINCT branch, op FROM wait WHERE execution = $1 AND NOT looked ORDER BY branch, op;

-- name: Satisfy :many
-- Hands a wait the earliest event that it matches, that came after the execution began and that the execution has not
-- had yet. The caller holds the lock of the execution.
INSERT INTO delivery (execution, branch, op, kind, event)
SELECT w.execution, w.branch, w.op, 0, k.event
FROM wait w
JOIN execution x ON x.id = w.execution
JOIN event_key k ON k.key = w.key AND k.event > x.start_event
WHERE w.execution = sqlc.arg(execution) AND w.branch = sqlc.arg(branch) AND w.op = sqlc.arg(op)
  AND NOT EXISTS (SELECT 1 FROM entry n WHERE n.execution = w.execution AND n.event = k.event)
  AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.execution = w.execution AND d.event = k.event)
  AND NOT EXISTS (SELECT 1 FROM spent s WHERE s.execution = w.execution AND s.event = k.event)
ORDER BY k.event
LIMIT 1
ON CONFLICT DO NOTHING
RETURNING event;

-- name: EventLooked :exec
UPDATE event SET looked = true WHERE id = $1;

-- name: WaitLooked :exec
UPDATE wait SET looked = true WHERE execution = $1 AND branch = $2 AND op = $3;

-- name: EventsNotLooked :many
SELECT id FROM event WHERE NOT looked AND received_at < sqlc.arg(before) ORDER BY received_at LIMIT 100;

-- name: ExecutionsNotLooked :many
SELECT DISTINCT execution FROM wait WHERE NOT looked AND created_at < sqlc.arg(before) LIMIT 100;

-- name: ForgetEvents :execrows
-- Events that wait to be consumed stay, and so do the messages of channels that are open.
DELETE FROM event
WHERE id IN (
    SELECT e.id FROM event e
    WHERE e.received_at < sqlc.arg(before) AND e.looked
      AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.event = e.id)
      AND NOT (e.type = sqlc.arg(message) AND EXISTS (SELECT 1 FROM channel c WHERE c.token = e.data ->> 'channel'))
    ORDER BY e.received_at
    LIMIT 5000
);

-- name: HasChannel :one
SELECT EXISTS (SELECT 1 FROM channel WHERE token = $1 AND organization = $2);

-- name: HasEvent :one
SELECT EXISTS (SELECT 1 FROM event WHERE organization = $1 AND source = $2 AND event_id = $3);
