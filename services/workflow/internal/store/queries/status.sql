-- name: SaveStatuses :exec
-- The last values of one commit. null takes a key away.
WITH u AS (
    SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(executions)::bigint[]) AS execution,
        unnest(sqlc.arg(keys)::text[]) AS key, unnest(sqlc.arg(vals)::text[])::jsonb AS value, unnest(sqlc.arg(ats)::timestamptz[]) AS at
), gone AS (
    DELETE FROM status USING u
    WHERE u.value = 'null' AND status.organization = ANY (ARRAY[u.organization]) AND status.execution = u.execution AND status.key = u.key
)
INSERT INTO status (organization, execution, key, value, set_at)
SELECT u.organization, u.execution, u.key, u.value, u.at FROM u WHERE u.value <> 'null'
ON CONFLICT (organization, execution, key) DO UPDATE SET value = excluded.value, set_at = excluded.set_at;

-- name: Reported :one
SELECT coalesce((SELECT jsonb_object_agg(s.key, s.value) FROM status s WHERE s.organization = sqlc.arg(organization) AND s.execution = sqlc.arg(execution)), '{}')::jsonb AS status,
    EXISTS (SELECT FROM program_change c WHERE c.organization = sqlc.arg(organization) AND c.execution = sqlc.arg(execution))::boolean AS changed;

-- name: Statuses :many
SELECT execution, key, value FROM status WHERE organization = sqlc.arg(organization) AND execution = ANY (sqlc.arg(executions)::bigint[]);
