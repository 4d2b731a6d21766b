-- name: ListLabelled :many
-- ListExecutions of those that bear a label, newest first. At most so many are read as the budget allows.
SELECT id, ref, organization, workflow, state, error, program, labels, attempt, created_at, ended_at,
    greatest(last_seq, last.seq)::bigint AS last_seq, coalesce(last.recorded_at, created_at)::timestamptz AS updated_at,
    coalesce((SELECT g.number FROM generation g WHERE g.execution = execution.id ORDER BY g.number DESC LIMIT 1), 1)::int AS generation,
    coalesce((SELECT g.base_seq FROM generation g WHERE g.execution = execution.id ORDER BY g.number DESC LIMIT 1), 0)::bigint AS base_seq
FROM (
    SELECT b.execution AS number FROM execution_label b
    WHERE b.organization = sqlc.arg(organization) AND b.key = sqlc.arg(key) AND b.value = sqlc.arg(value)
      AND b.execution < sqlc.arg(before) AND b.execution >= sqlc.arg(least)
    ORDER BY b.execution DESC LIMIT sqlc.arg(budget)
) AS bearing
CROSS JOIN LATERAL (SELECT e.* FROM execution e WHERE e.id = bearing.number LIMIT 1) AS execution
LEFT JOIN LATERAL (SELECT entry.seq, entry.recorded_at FROM entry WHERE entry.execution = execution.id ORDER BY entry.seq DESC LIMIT 1) AS last ON true
WHERE labels @> sqlc.arg(labels)::jsonb
  AND (cardinality(sqlc.arg(states)::text[]) = 0 OR state = ANY (sqlc.arg(states)::text[]))
  AND (sqlc.narg(program)::bytea IS NULL OR program = sqlc.narg(program))
  AND (sqlc.narg(started_from)::timestamptz IS NULL OR created_at >= sqlc.narg(started_from))
  AND (sqlc.narg(started_to)::timestamptz IS NULL OR created_at < sqlc.narg(started_to))
  AND (sqlc.narg(ended_from)::timestamptz IS NULL OR ended_at >= sqlc.narg(ended_from))
  AND (sqlc.narg(ended_to)::timestamptz IS NULL OR ended_at < sqlc.narg(ended_to))
  AND starts_with(workflow, sqlc.arg(prefix)::text) AND position(sqlc.arg(part)::text IN workflow) > 0
  AND NOT EXISTS (
      SELECT FROM (SELECT unnest(sqlc.arg(status_keys)::text[]) AS key, unnest(sqlc.arg(status_values)::text[]) AS value) AS wanted
      WHERE NOT EXISTS (
          SELECT FROM status s
          WHERE s.organization = execution.organization AND s.execution = execution.id AND s.key = wanted.key AND s.value = wanted.value::jsonb
      )
  )
ORDER BY bearing.number DESC
LIMIT sqlc.arg(most);

-- name: CountLabelled :one
-- How many executions ListLabelled would list, up to a number.
SELECT count(*) FROM (
    SELECT FROM (
    SELECT b.execution AS number FROM execution_label b
    WHERE b.organization = sqlc.arg(organization) AND b.key = sqlc.arg(key) AND b.value = sqlc.arg(value)
      AND b.execution < sqlc.arg(before) AND b.execution >= sqlc.arg(least)
    ORDER BY b.execution DESC LIMIT sqlc.arg(budget)
) AS bearing
    CROSS JOIN LATERAL (SELECT e.* FROM execution e WHERE e.id = bearing.number LIMIT 1) AS execution
    WHERE labels @> sqlc.arg(labels)::jsonb
  AND (cardinality(sqlc.arg(states)::text[]) = 0 OR state = ANY (sqlc.arg(states)::text[]))
  AND (sqlc.narg(program)::bytea IS NULL OR program = sqlc.narg(program))
  AND (sqlc.narg(started_from)::timestamptz IS NULL OR created_at >= sqlc.narg(started_from))
  AND (sqlc.narg(started_to)::timestamptz IS NULL OR created_at < sqlc.narg(started_to))
  AND (sqlc.narg(ended_from)::timestamptz IS NULL OR ended_at >= sqlc.narg(ended_from))
  AND (sqlc.narg(ended_to)::timestamptz IS NULL OR ended_at < sqlc.narg(ended_to))
  AND starts_with(workflow, sqlc.arg(prefix)::text) AND position(sqlc.arg(part)::text IN workflow) > 0
  AND NOT EXISTS (
      SELECT FROM (SELECT unnest(sqlc.arg(status_keys)::text[]) AS key, unnest(sqlc.arg(status_values)::text[]) AS value) AS wanted
      WHERE NOT EXISTS (
          SELECT FROM status s
          WHERE s.organization = execution.organization AND s.execution = execution.id AND s.key = wanted.key AND s.value = wanted.value::jsonb
      )
  )
    LIMIT sqlc.arg(most)
) AS found;

-- name: ScannedLabelled :one
-- How many executions ListLabelled has read, and the last of them.
SELECT count(*) AS n, coalesce(min(bearing.number), 0)::bigint AS last FROM (
    SELECT b.execution AS number FROM execution_label b
    WHERE b.organization = sqlc.arg(organization) AND b.key = sqlc.arg(key) AND b.value = sqlc.arg(value)
      AND b.execution < sqlc.arg(before) AND b.execution >= sqlc.arg(least)
    ORDER BY b.execution DESC LIMIT sqlc.arg(budget)
) AS bearing;

-- name: RarestLabelled :one
-- The one of several that the fewest executions bear, and how many do, as far as that is cheap to know.
SELECT wanted.at::int AS at, few.n
FROM (
    SELECT unnest(sqlc.arg(keys)::text[]) AS key, unnest(sqlc.arg(vals)::text[]) AS value, generate_subscripts(sqlc.arg(keys)::text[], 1) AS at
) AS wanted
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM execution_label b WHERE b.organization = sqlc.arg(organization) AND b.key = wanted.key AND b.value = wanted.value
        ORDER BY b.execution LIMIT 1000
    ) AS counted
) AS few
ORDER BY few.n, wanted.at
LIMIT 1;

-- name: ListReporting :many
-- ListExecutions of those that report a status value, newest first. At most so many are read as the budget allows.
SELECT id, ref, organization, workflow, state, error, program, labels, attempt, created_at, ended_at,
    greatest(last_seq, last.seq)::bigint AS last_seq, coalesce(last.recorded_at, created_at)::timestamptz AS updated_at,
    coalesce((SELECT g.number FROM generation g WHERE g.execution = execution.id ORDER BY g.number DESC LIMIT 1), 1)::int AS generation,
    coalesce((SELECT g.base_seq FROM generation g WHERE g.execution = execution.id ORDER BY g.number DESC LIMIT 1), 0)::bigint AS base_seq
FROM (
    SELECT b.execution AS number FROM status b
    WHERE b.organization = sqlc.arg(organization) AND b.key = sqlc.arg(key) AND b.value = sqlc.arg(value)::text::jsonb
      AND b.execution < sqlc.arg(before) AND b.execution >= sqlc.arg(least)
    ORDER BY b.execution DESC LIMIT sqlc.arg(budget)
) AS bearing
CROSS JOIN LATERAL (SELECT e.* FROM execution e WHERE e.id = bearing.number LIMIT 1) AS execution
LEFT JOIN LATERAL (SELECT entry.seq, entry.recorded_at FROM entry WHERE entry.execution = execution.id ORDER BY entry.seq DESC LIMIT 1) AS last ON true
WHERE (cardinality(sqlc.arg(states)::text[]) = 0 OR state = ANY (sqlc.arg(states)::text[]))
  AND (sqlc.narg(labels)::jsonb IS NULL OR labels @> sqlc.narg(labels)::jsonb)
  AND (sqlc.narg(program)::bytea IS NULL OR program = sqlc.narg(program))
  AND (sqlc.narg(started_from)::timestamptz IS NULL OR created_at >= sqlc.narg(started_from))
  AND (sqlc.narg(started_to)::timestamptz IS NULL OR created_at < sqlc.narg(started_to))
  AND (sqlc.narg(ended_from)::timestamptz IS NULL OR ended_at >= sqlc.narg(ended_from))
  AND (sqlc.narg(ended_to)::timestamptz IS NULL OR ended_at < sqlc.narg(ended_to))
  AND starts_with(workflow, sqlc.arg(prefix)::text) AND position(sqlc.arg(part)::text IN workflow) > 0
  AND NOT EXISTS (
      SELECT FROM (SELECT unnest(sqlc.arg(status_keys)::text[]) AS key, unnest(sqlc.arg(status_values)::text[]) AS value) AS wanted
      WHERE NOT EXISTS (
          SELECT FROM status s
          WHERE s.organization = execution.organization AND s.execution = execution.id AND s.key = wanted.key AND s.value = wanted.value::jsonb
      )
  )
ORDER BY bearing.number DESC
LIMIT sqlc.arg(most);

-- name: CountReporting :one
-- How many executions ListReporting would list, up to a number.
SELECT count(*) FROM (
    SELECT FROM (
    SELECT b.execution AS number FROM status b
    WHERE b.organization = sqlc.arg(organization) AND b.key = sqlc.arg(key) AND b.value = sqlc.arg(value)::text::jsonb
      AND b.execution < sqlc.arg(before) AND b.execution >= sqlc.arg(least)
    ORDER BY b.execution DESC LIMIT sqlc.arg(budget)
) AS bearing
    CROSS JOIN LATERAL (SELECT e.* FROM execution e WHERE e.id = bearing.number LIMIT 1) AS execution
    WHERE (cardinality(sqlc.arg(states)::text[]) = 0 OR state = ANY (sqlc.arg(states)::text[]))
  AND (sqlc.narg(labels)::jsonb IS NULL OR labels @> sqlc.narg(labels)::jsonb)
  AND (sqlc.narg(program)::bytea IS NULL OR program = sqlc.narg(program))
  AND (sqlc.narg(started_from)::timestamptz IS NULL OR created_at >= sqlc.narg(started_from))
  AND (sqlc.narg(started_to)::timestamptz IS NULL OR created_at < sqlc.narg(started_to))
  AND (sqlc.narg(ended_from)::timestamptz IS NULL OR ended_at >= sqlc.narg(ended_from))
  AND (sqlc.narg(ended_to)::timestamptz IS NULL OR ended_at < sqlc.narg(ended_to))
  AND starts_with(workflow, sqlc.arg(prefix)::text) AND position(sqlc.arg(part)::text IN workflow) > 0
  AND NOT EXISTS (
      SELECT FROM (SELECT unnest(sqlc.arg(status_keys)::text[]) AS key, unnest(sqlc.arg(status_values)::text[]) AS value) AS wanted
      WHERE NOT EXISTS (
          SELECT FROM status s
          WHERE s.organization = execution.organization AND s.execution = execution.id AND s.key = wanted.key AND s.value = wanted.value::jsonb
      )
  )
    LIMIT sqlc.arg(most)
) AS found;

-- name: ScannedReporting :one
-- How many executions ListReporting has read, and the last of them.
SELECT count(*) AS n, coalesce(min(bearing.number), 0)::bigint AS last FROM (
    SELECT b.execution AS number FROM status b
    WHERE b.organization = sqlc.arg(organization) AND b.key = sqlc.arg(key) AND b.value = sqlc.arg(value)::text::jsonb
      AND b.execution < sqlc.arg(before) AND b.execution >= sqlc.arg(least)
    ORDER BY b.execution DESC LIMIT sqlc.arg(budget)
) AS bearing;

-- name: RarestReporting :one
-- The one of several that the fewest executions bear, and how many do, as far as that is cheap to know.
SELECT wanted.at::int AS at, few.n
FROM (
    SELECT unnest(sqlc.arg(keys)::text[]) AS key, unnest(sqlc.arg(vals)::text[]) AS value, generate_subscripts(sqlc.arg(keys)::text[], 1) AS at
) AS wanted
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM status b WHERE b.organization = sqlc.arg(organization) AND b.key = wanted.key AND b.value = wanted.value::jsonb
        ORDER BY b.execution LIMIT 1000
    ) AS counted
) AS few
ORDER BY few.n, wanted.at
LIMIT 1;

-- name: FewTroubled :one
-- How many executions have ended badly, as far as that is cheap to know.
SELECT count(*) FROM (
    SELECT FROM execution e WHERE e.organization = sqlc.arg(organization) AND e.troubled ORDER BY e.id LIMIT 1000
) AS counted;
