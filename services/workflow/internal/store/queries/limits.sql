-- name: UsageLimits :many
SELECT organization, open_runs, starts_per_second, events_per_second, storage_bytes, calls_per_second FROM usage_limit ORDER BY organization;

-- name: LiveProcesses :one
SELECT count(*) FROM lease WHERE until > sqlc.arg(now)::timestamptz AND NOT ended;

-- name: LockSettings :exec
-- Changes of an organization take turns, so that each records what it has replaced.
SELECT pg_advisory_xact_lock(hashtext('settings'), hashtext(sqlc.arg(organization)::bigint::text));

-- name: UsageLimitOf :one
SELECT organization, open_runs, starts_per_second, events_per_second, storage_bytes, calls_per_second FROM usage_limit WHERE organization = $1;

-- name: SaveUsageLimit :exec
INSERT INTO usage_limit (organization, open_runs, starts_per_second, events_per_second, storage_bytes, calls_per_second)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (organization) DO UPDATE SET
    open_runs = excluded.open_runs, starts_per_second = excluded.starts_per_second, events_per_second = excluded.events_per_second,
    storage_bytes = excluded.storage_bytes, calls_per_second = excluded.calls_per_second;

-- name: DropUsageLimit :exec
DELETE FROM usage_limit WHERE organization = $1;

-- name: SaveSettingChange :exec
INSERT INTO setting_change (organization, changed_at, setting, changed_by, reason, before, after)
VALUES (sqlc.arg(organization), sqlc.arg(changed_at), sqlc.arg(setting), sqlc.arg(changed_by), sqlc.arg(reason), sqlc.narg(before), sqlc.narg(after));

-- name: SettingChanges :many
-- The newest first.
SELECT changed_at, setting, changed_by, reason, coalesce(before, 'null')::text AS before, coalesce(after, 'null')::text AS after
FROM setting_change WHERE organization = $1 ORDER BY changed_at DESC, id DESC LIMIT sqlc.arg(most);

-- name: OpenRuns :many
-- How many runs of each organization have not ended: everything that a run waits for has a timer, and what does not wait is runnable.
SELECT e.organization, count(*) AS runs
FROM (SELECT t.execution FROM timer t UNION SELECT r.execution FROM runnable r) AS open
JOIN execution e ON e.id = ANY (ARRAY[open.execution]) AND e.state IN ('running', 'parked')
GROUP BY e.organization;

-- name: StorageOf :one
-- The bytes of what an organization has stored: runs, histories, events and payloads, with about as much for a row as it takes.
SELECT (
    coalesce((SELECT sum(pg_column_size(p.data)) FROM payload p WHERE p.organization = sqlc.arg(organization)), 0)
    + coalesce((SELECT sum(pg_column_size(e.data) + 150) FROM event e WHERE e.organization = sqlc.arg(organization)), 0)
    + coalesce((SELECT sum(pg_column_size(x.inputs) + 400 + (
        SELECT coalesce(sum(coalesce(pg_column_size(n.value), 0) + coalesce(pg_column_size(n.tries), 0) + 100), 0) FROM entry n WHERE n.execution = x.id
    )) FROM execution x WHERE x.organization = sqlc.arg(organization)), 0)
)::bigint AS bytes;

-- name: RetentionRules :many
SELECT label, value, keep FROM retention_rule WHERE organization = $1 ORDER BY label, value;

-- name: OrganizationsWithRetention :many
SELECT DISTINCT organization FROM retention_rule ORDER BY organization;

-- name: SaveRetentionRule :exec
INSERT INTO retention_rule (organization, label, value, keep) VALUES ($1, $2, $3, $4)
ON CONFLICT (organization, label, value) DO UPDATE SET keep = excluded.keep;

-- name: DropRetentionRule :exec
DELETE FROM retention_rule WHERE organization = $1 AND label = $2 AND value = $3;

-- name: OldRuns :many
-- Runs in the order of their starts, from a number on.
SELECT id, workflow, labels, created_at, ended_at FROM execution
WHERE organization = sqlc.arg(organization) AND id > sqlc.arg(after) AND created_at < sqlc.arg(before)::timestamptz
ORDER BY id LIMIT sqlc.arg(most);

-- name: DropRuns :one
-- Deletes runs with everything that belongs to them. One that is retried at the same moment has not ended, and stays.
WITH gone AS (
    DELETE FROM execution WHERE execution.id = ANY (sqlc.arg(ids)::bigint[]) AND execution.ended_at < sqlc.arg(before)::timestamptz
    RETURNING id, organization, workflow
), entries AS (DELETE FROM entry USING gone WHERE entry.execution = ANY (ARRAY[gone.id])
), generations AS (DELETE FROM generation USING gone WHERE generation.execution = ANY (ARRAY[gone.id])
), marks AS (DELETE FROM consumed c USING gone WHERE c.execution = ANY (ARRAY[gone.id])
), spents AS (DELETE FROM spent USING gone WHERE spent.execution = ANY (ARRAY[gone.id])
), retries AS (DELETE FROM retry USING gone WHERE retry.execution = ANY (ARRAY[gone.id])
), traces AS (DELETE FROM trace USING gone WHERE trace.execution = ANY (ARRAY[gone.id])
), changes AS (DELETE FROM program_change USING gone
    WHERE program_change.organization = ANY (ARRAY[gone.organization]) AND program_change.execution = gone.id
), statuses AS (DELETE FROM status USING gone WHERE status.organization = ANY (ARRAY[gone.organization]) AND status.execution = gone.id
), children AS (DELETE FROM child USING gone WHERE child.organization = ANY (ARRAY[gone.organization]) AND child.workflow = gone.workflow
), payloads AS (DELETE FROM payload_use USING gone
    WHERE payload_use.owner = ANY (ARRAY[gone.id]) AND payload_use.holder IN ('start', 'entry', 'generation')
)
SELECT count(*) FROM gone;
