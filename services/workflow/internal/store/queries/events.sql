-- name: SaveShape :exec
INSERT INTO shape (organization, type, paths) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- name: FindShape :one
SELECT id, filled FROM shape WHERE organization = $1 AND type = $2 AND paths = $3;

-- name: EventsOfType :many
SELECT id, source, data FROM event WHERE organization = $1 AND type = $2 AND id > $3 ORDER BY id LIMIT $4;

-- name: ShapeFilled :exec
UPDATE shape SET filled = true WHERE id = $1;

-- name: ForgetEvents :one
-- Keeps events that wait to be consumed, and messages of open channels that have not been received.
WITH old AS (
    DELETE FROM event
    WHERE id = ANY (ARRAY(
        SELECT e.id FROM event e
        WHERE e.received_at < sqlc.arg(before)
          AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.event = e.id)
          AND NOT (e.type = sqlc.arg(message) AND EXISTS (
              SELECT 1 FROM channel c WHERE c.token = e.data ->> 'channel'
                AND NOT EXISTS (SELECT 1 FROM entry n WHERE n.execution = c.execution AND n.event = e.id)
                AND NOT EXISTS (SELECT 1 FROM spent s WHERE s.execution = c.execution AND s.event = e.id)
          ))
        ORDER BY e.received_at
        LIMIT 5000
    ))
    RETURNING id
), keys AS (
    DELETE FROM event_key USING old WHERE event_key.event = old.id
), payloads AS (
    DELETE FROM payload_use USING old WHERE payload_use.owner = ANY (ARRAY[old.id]) AND payload_use.holder = 'event'
)
SELECT count(*) FROM old;

-- name: HasChannel :one
SELECT EXISTS (SELECT 1 FROM channel WHERE token = $1 AND organization = $2);

-- name: HasEvent :one
SELECT EXISTS (SELECT 1 FROM event WHERE organization = $1 AND source = $2 AND event_id = $3);

-- name: OpenInbox :one
-- Has the inbox of a run that has not ended among the open channels, and reports whether there is such a run. A run that ends at the same
-- moment may leave the row behind: FindAnswer looks at the run, too.
WITH live AS (
    SELECT execution.id, execution.organization FROM execution
    WHERE execution.ref = sqlc.arg(ref) AND execution.organization = sqlc.arg(organization) AND execution.state IN ('running', 'parked')
), opened AS (
    INSERT INTO channel (token, execution, organization) SELECT sqlc.arg(token)::text, live.id, live.organization FROM live
    ON CONFLICT DO NOTHING
)
SELECT EXISTS (SELECT 1 FROM live);

-- name: FindAnswer :one
-- The answer to a call, empty where there is none, and whether there still may be one. Both are of one moment.
SELECT
    coalesce((
        SELECT event.data::text FROM event
        WHERE event.organization = sqlc.arg(organization) AND event.source = sqlc.arg(source) AND event.event_id = sqlc.arg(event_id)
    ), '')::text AS answer,
    EXISTS (
        SELECT 1 FROM channel JOIN execution ON execution.id = channel.execution
        WHERE channel.token = sqlc.arg(token) AND channel.organization = sqlc.arg(organization) AND execution.state IN ('running', 'parked')
    ) AS open;
