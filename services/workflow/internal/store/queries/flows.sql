-- name: LockFlowName :exec
-- Serializes the registrations of one name.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || '/flow/' || sqlc.arg(organization)::bigint || '/' || sqlc.arg(name)::text, 0));

-- name: CurrentFlow :one
SELECT id, version, digest, registered_at FROM flow WHERE organization = $1 AND name = $2 AND retired_at IS NULL;

-- name: LastVersion :one
SELECT coalesce(max(version), 0)::int FROM flow WHERE organization = $1 AND name = $2;

-- name: SaveFlow :one
INSERT INTO flow (organization, name, version, program, modules, inputs, secrets, labels, digest, registered_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
RETURNING id;

-- name: SaveHandler :one
INSERT INTO flow_handler (flow, place, types, filter, function, position) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id;

-- name: SaveTriggers :exec
INSERT INTO flow_trigger (organization, type, handler)
SELECT DISTINCT sqlc.arg(organization)::bigint, unnest(sqlc.arg(types)::text[]), sqlc.arg(handler)::bigint;

-- name: RetireFlow :one
UPDATE flow SET retired_at = sqlc.arg(retired_at)::timestamptz
WHERE organization = sqlc.arg(organization) AND name = sqlc.arg(name) AND retired_at IS NULL
RETURNING id;

-- name: DropTriggers :exec
DELETE FROM flow_trigger USING flow_handler WHERE flow_handler.id = flow_trigger.handler AND flow_handler.flow = $1;

-- name: ListFlows :many
SELECT flow.id, flow.organization, flow.name, flow.version, flow.program, flow.registered_at,
    sum(v.started)::bigint AS started, sum(v.refused)::bigint AS refused,
    coalesce((array_agg(v.last_refusal ORDER BY v.version DESC) FILTER (WHERE v.last_refusal <> ''))[1], '')::text AS last_refusal
FROM flow JOIN flow v ON v.organization = flow.organization AND v.name = flow.name
WHERE flow.organization = sqlc.arg(organization) AND flow.name > coalesce((SELECT f.name FROM flow f WHERE f.id = sqlc.arg(after)), '') AND flow.retired_at IS NULL
GROUP BY flow.id
ORDER BY flow.name
LIMIT sqlc.arg(most);

-- name: HandlersOf :many
SELECT id, flow, place, types, filter, function, position FROM flow_handler WHERE flow = ANY (sqlc.arg(flows)::bigint[]) ORDER BY flow, place;

-- name: LoadFlow :one
SELECT id, organization, name, version, program, modules, inputs, secrets, labels, registered_at FROM flow WHERE id = $1;

-- name: NextFlowWork :many
-- Takes what is due. The next attempt is scheduled before this one is made, so that a crash does not lose it.
WITH due AS (
    SELECT w.event, w.handler FROM flow_work w WHERE w.next_at <= sqlc.arg(now) ORDER BY w.next_at LIMIT sqlc.arg(most) FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE flow_work SET
        attempt = flow_work.attempt + 1,
        next_at = sqlc.arg(now)::timestamptz + least(sqlc.arg(longest)::interval, sqlc.arg(first)::interval * power(2, least(flow_work.attempt, 20)))
    FROM due
    WHERE flow_work.event = ANY (ARRAY[due.event]) AND flow_work.handler = due.handler
    RETURNING flow_work.event, flow_work.handler
)
SELECT taken.handler, flow_handler.flow, flow_handler.place, event.id, event.organization, event.source, event.event_id, event.type, event.data, event.occurred_at
FROM taken
JOIN flow_handler ON flow_handler.id = ANY (ARRAY[taken.handler])
JOIN event ON event.id = ANY (ARRAY[taken.event])
ORDER BY event.id, flow_handler.place;

-- name: DropFlowWork :execrows
DELETE FROM flow_work WHERE event = $1 AND handler = $2;

-- name: CountStart :exec
UPDATE flow SET started = started + 1 WHERE id = $1;

-- name: CountRefusal :exec
UPDATE flow SET refused = refused + 1, last_refusal = $2 WHERE id = $1;
