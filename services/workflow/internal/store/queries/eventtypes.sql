-- name: LockEventTypes :exec
-- Declarations of an organization take turns, so that they can be counted.
SELECT pg_advisory_xact_lock(hashtext('event types'), hashtext(sqlc.arg(organization)::bigint::text));

-- name: CountEventTypes :one
SELECT count(*) FROM event_type WHERE organization = sqlc.arg(organization) AND type <> sqlc.arg(except_type);

-- name: SaveEventType :one
INSERT INTO event_type (organization, type, description, schema, version, declared_by, declared_at)
VALUES (sqlc.arg(organization), sqlc.arg(type), sqlc.arg(description), sqlc.arg(schema)::text::json, 1, sqlc.arg(declared_by), sqlc.arg(declared_at))
ON CONFLICT (organization, type) DO UPDATE SET
    description = excluded.description, schema = excluded.schema, version = event_type.version + 1, declared_by = excluded.declared_by,
    declared_at = excluded.declared_at
WHERE event_type.description <> excluded.description OR event_type.schema::text <> excluded.schema::text
RETURNING version;

-- name: EventTypes :many
SELECT type, description, schema, version, declared_by, declared_at FROM event_type WHERE organization = $1 ORDER BY type;

-- name: DeleteEventType :execrows
DELETE FROM event_type WHERE organization = $1 AND type = $2;
