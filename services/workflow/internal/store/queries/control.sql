-- name: ListExecutions :many
-- The newest executions of an organization, by execution_by_age, from its end. At most so many are read as the budget allows. Both columns
-- are compared and ordered together: by the number alone the executions of other organizations would be read, too.
SELECT id, ref, organization, workflow, state, error, program, labels, attempt, created_at, ended_at,
    greatest(last_seq, last.seq)::bigint AS last_seq, coalesce(last.recorded_at, created_at)::timestamptz AS updated_at,
    coalesce((SELECT g.number FROM generation g WHERE g.execution = execution.id ORDER BY g.number DESC LIMIT 1), 1)::int AS generation,
    coalesce((SELECT g.base_seq FROM generation g WHERE g.execution = execution.id ORDER BY g.number DESC LIMIT 1), 0)::bigint AS base_seq
FROM (
    SELECT e.* FROM execution e
    WHERE (e.organization, e.id) < (sqlc.arg(organization), sqlc.arg(before)) AND (e.organization, e.id) >= (sqlc.arg(organization), sqlc.arg(least))
    ORDER BY e.organization DESC, e.id DESC LIMIT sqlc.arg(budget)
) AS execution
LEFT JOIN LATERAL (SELECT entry.seq, entry.recorded_at FROM entry WHERE entry.execution = execution.id ORDER BY entry.seq DESC LIMIT 1) AS last ON true
WHERE (cardinality(sqlc.arg(states)::text[]) = 0 OR state = ANY (sqlc.arg(states)::text[]))
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
ORDER BY organization DESC, id DESC
LIMIT sqlc.arg(most);

-- name: ListTroubled :many
-- ListExecutions of those that ended badly, by execution_by_trouble.
SELECT id, ref, organization, workflow, state, error, program, labels, attempt, created_at, ended_at,
    greatest(last_seq, last.seq)::bigint AS last_seq, coalesce(last.recorded_at, created_at)::timestamptz AS updated_at,
    coalesce((SELECT g.number FROM generation g WHERE g.execution = execution.id ORDER BY g.number DESC LIMIT 1), 1)::int AS generation,
    coalesce((SELECT g.base_seq FROM generation g WHERE g.execution = execution.id ORDER BY g.number DESC LIMIT 1), 0)::bigint AS base_seq
FROM (
    SELECT e.* FROM execution e
    WHERE (e.organization, e.id) < (sqlc.arg(organization), sqlc.arg(before)) AND (e.organization, e.id) >= (sqlc.arg(organization), sqlc.arg(least)) AND e.troubled
    ORDER BY e.organization DESC, e.id DESC LIMIT sqlc.arg(budget)
) AS execution
LEFT JOIN LATERAL (SELECT entry.seq, entry.recorded_at FROM entry WHERE entry.execution = execution.id ORDER BY entry.seq DESC LIMIT 1) AS last ON true
WHERE state = ANY (sqlc.arg(states)::text[])
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
ORDER BY organization DESC, id DESC
LIMIT sqlc.arg(most);

-- name: ScannedExecutions :one
-- How many executions a list has read, and the last of them.
SELECT count(*) AS n, coalesce(min(scanned.id), 0)::bigint AS last FROM (
    SELECT e.id FROM execution e
    WHERE (e.organization, e.id) < (sqlc.arg(organization), sqlc.arg(before)) AND (e.organization, e.id) >= (sqlc.arg(organization), sqlc.arg(least))
    ORDER BY e.organization DESC, e.id DESC LIMIT sqlc.arg(budget)
) AS scanned;

-- name: ScannedTroubled :one
-- How many executions a list has read, and the last of them.
SELECT count(*) AS n, coalesce(min(scanned.id), 0)::bigint AS last FROM (
    SELECT e.id FROM execution e
    WHERE (e.organization, e.id) < (sqlc.arg(organization), sqlc.arg(before)) AND (e.organization, e.id) >= (sqlc.arg(organization), sqlc.arg(least)) AND e.troubled
    ORDER BY e.organization DESC, e.id DESC LIMIT sqlc.arg(budget)
) AS scanned;

-- name: CountExecutions :one
-- How many executions ListExecutions would list, up to a number.
SELECT count(*) FROM (
    SELECT FROM (
        SELECT e.* FROM execution e
        WHERE (e.organization, e.id) < (sqlc.arg(organization), sqlc.arg(before)) AND (e.organization, e.id) >= (sqlc.arg(organization), sqlc.arg(least))
        ORDER BY e.organization DESC, e.id DESC LIMIT sqlc.arg(budget)
    ) AS execution
    WHERE (cardinality(sqlc.arg(states)::text[]) = 0 OR state = ANY (sqlc.arg(states)::text[]))
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

-- name: CountTroubled :one
SELECT count(*) FROM (
    SELECT FROM (
        SELECT e.* FROM execution e
        WHERE (e.organization, e.id) < (sqlc.arg(organization), sqlc.arg(before)) AND (e.organization, e.id) >= (sqlc.arg(organization), sqlc.arg(least)) AND e.troubled
        ORDER BY e.organization DESC, e.id DESC LIMIT sqlc.arg(budget)
    ) AS execution
    WHERE state = ANY (sqlc.arg(states)::text[])
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

-- name: ExecutionFrom :one
-- The first execution of an organization with at least this number.
SELECT id, created_at FROM (
    SELECT e.organization, e.id, e.created_at FROM execution e
    WHERE (e.organization, e.id) >= (sqlc.arg(organization), sqlc.arg(id)) ORDER BY e.organization, e.id LIMIT 1
) AS following WHERE organization = sqlc.arg(organization);

-- name: LastExecution :one
SELECT coalesce((
    SELECT newest.id FROM (
        SELECT e.organization, e.id FROM execution e
        WHERE (e.organization, e.id) <= (sqlc.arg(organization), 9223372036854775807) ORDER BY e.organization DESC, e.id DESC LIMIT 1
    ) AS newest WHERE newest.organization = sqlc.arg(organization)
), 0)::bigint AS id;

-- name: LogEntries :many
-- The entries of a history that a log shows.
SELECT seq, branch, op, kind, name, value, error, recorded_at
FROM entry
WHERE execution = sqlc.arg(execution) AND seq > sqlc.arg(after)
  AND kind = ANY (sqlc.arg(kinds)::text[])
  AND (sqlc.narg(branch)::int IS NULL OR branch = sqlc.narg(branch))
ORDER BY seq
LIMIT sqlc.arg(most);

-- name: Progresses :many
SELECT id, state, turn, greatest(last_seq, (SELECT max(entry.seq) FROM entry WHERE entry.execution = execution.id))::bigint AS last_seq
FROM execution WHERE id = ANY (sqlc.arg(ids)::bigint[]);

-- name: EndExecution :exec
WITH stopped AS (
    DELETE FROM runnable WHERE runnable.execution = sqlc.arg(id)
)
UPDATE execution SET
    state = sqlc.arg(state), error = sqlc.arg(error), ended_at = sqlc.arg(ended_at)::timestamptz,
    last_seq = sqlc.arg(last_seq), turn = turn + 1, owner = NULL, owner_epoch = NULL
WHERE execution.id = sqlc.arg(id);

-- name: FailedStep :one
-- The last entry of the generation with an error; if there is none, the last one that its branch was blocked for; if there is none
-- either, the first one. What the run did at its end is left out.
WITH program_end AS (
    SELECT coalesce(min(n.seq), 9223372036854775807) AS seq FROM entry n
    WHERE n.execution = sqlc.arg(execution) AND n.seq > sqlc.arg(base) AND n.kind = sqlc.arg(ending)::text
)
SELECT coalesce(
    (SELECT max(e.seq) FROM entry e WHERE e.execution = sqlc.arg(execution) AND e.seq > sqlc.arg(base) AND e.seq < program_end.seq
        AND e.branch >= 0 AND e.error IS NOT NULL),
    (SELECT max(e.seq) FROM entry e WHERE e.execution = sqlc.arg(execution) AND e.seq > sqlc.arg(base) AND e.seq < program_end.seq
        AND e.branch >= 0 AND e.kind <> ALL (sqlc.arg(immediate)::text[])),
    sqlc.arg(base)::bigint + 1
)::bigint AS seq
FROM program_end;

-- name: HasDeferred :one
-- Whether the execution has deferred calls, in this generation or carried from the one before.
SELECT (EXISTS (
    SELECT FROM entry n WHERE n.execution = sqlc.arg(execution) AND n.kind = sqlc.arg(kind)::text
      AND n.seq > coalesce((SELECT max(g.base_seq) FROM generation g WHERE g.execution = sqlc.arg(execution)), 0)
) OR coalesce((
    SELECT g.call::jsonb ? 'deferred' FROM generation g WHERE g.execution = sqlc.arg(execution) ORDER BY g.number DESC LIMIT 1
), false))::boolean AS defers;

-- name: DeliverCancellation :exec
INSERT INTO delivery (execution, branch, op, kind, value) VALUES ($1, $2, $3, 1, $4)
ON CONFLICT DO NOTHING;

-- name: MarkConsumed :exec
INSERT INTO spent (execution, event)
SELECT entry.execution, entry.event FROM entry WHERE entry.execution = $1 AND entry.seq >= $2 AND entry.event IS NOT NULL
ON CONFLICT DO NOTHING;

-- name: ForgetEntries :exec
DELETE FROM entry WHERE execution = $1 AND seq >= $2;

-- name: ReopenChannels :exec
-- Opens the channels of the kept part of a history, which were closed when the run ended.
INSERT INTO channel (token, execution, organization)
SELECT entry.value #>> '{}', execution.id, execution.organization
FROM entry JOIN execution ON execution.id = entry.execution
WHERE entry.execution = $1 AND entry.seq < $2 AND entry.kind = 'channel'
ON CONFLICT DO NOTHING;

-- name: RetryExecution :exec
WITH runs AS (
    INSERT INTO runnable (execution, organization) SELECT e.id, e.organization FROM execution e WHERE e.id = sqlc.arg(id) ON CONFLICT DO NOTHING
)
UPDATE execution SET
    state = 'running', error = '', ended_at = NULL, last_seq = sqlc.arg(from_seq)::bigint - 1,
    turn = turn + 1, wakes = wakes + 1, attempt = attempt + 1, crashes = 0, owner = NULL, owner_epoch = NULL
WHERE execution.id = sqlc.arg(id);

-- name: SaveRetry :exec
INSERT INTO retry (execution, number, from_seq, error, reason, retried_at)
SELECT sqlc.arg(execution)::bigint, execution.attempt, sqlc.arg(from_seq)::bigint, execution.error, sqlc.arg(reason)::text, sqlc.arg(retried_at)::timestamptz
FROM execution WHERE execution.id = sqlc.arg(execution)::bigint;

-- name: Retries :many
SELECT from_seq, error, reason, retried_at FROM retry WHERE execution = $1 ORDER BY number;

-- name: ChannelsTaken :one
-- How many channels of the kept part of a history belong to another execution by now.
SELECT count(*) FROM entry
JOIN channel ON channel.token = entry.value #>> '{}'
WHERE entry.execution = sqlc.arg(execution) AND entry.seq < sqlc.arg(before) AND entry.kind = 'channel'
  AND channel.execution <> sqlc.arg(execution);

-- name: ResetExecution :one
-- A new execution with everything that another one was started with, and no history yet. No row if the workflow exists.
INSERT INTO execution (
    ref, organization, workflow, program, modules, inputs, secrets, labels, last_seq, start_event, created_at
)
SELECT sqlc.arg(ref), e.organization, sqlc.arg(workflow), e.program, e.modules, e.inputs, e.secrets,
    CASE WHEN jsonb_typeof(e.labels) = 'object' THEN e.labels ELSE '{}' END || sqlc.arg(labels)::text::jsonb, sqlc.arg(before)::bigint - 1,
    e.start_event, sqlc.arg(created_at)
FROM execution e WHERE e.id = sqlc.arg(source)
ON CONFLICT ON CONSTRAINT execution_once DO NOTHING
RETURNING id;

-- name: IsReset :one
-- Whether a workflow has certain labels.
SELECT coalesce(labels @> sqlc.arg(labels)::text::jsonb, false)::boolean AS same FROM execution
WHERE organization = sqlc.arg(organization) AND workflow = sqlc.arg(workflow);

-- name: CopyHistory :exec
-- Gives a new execution the present generation of another one up to an entry, the channels of earlier ones, what has been received, and what
-- was reported; and has it run.
WITH entries AS (
    INSERT INTO entry (execution, seq, branch, op, kind, name, hash, value, error, event, recorded_at, tries)
    SELECT sqlc.arg(into_execution)::bigint, n.seq, n.branch, n.op, n.kind, n.name, n.hash, n.value, n.error, n.event, n.recorded_at, n.tries
    FROM entry n
    WHERE n.execution = sqlc.arg(source)::bigint AND n.seq < sqlc.arg(before)::bigint
      AND (n.seq > sqlc.arg(base)::bigint OR n.kind = 'channel')
), generations AS (
    INSERT INTO generation (execution, number, base_seq, call, began_at, forgotten)
    SELECT sqlc.arg(into_execution)::bigint, g.number, g.base_seq, g.call, g.began_at, true
    FROM generation g WHERE g.execution = sqlc.arg(source)::bigint
), consumed AS (
    INSERT INTO spent (execution, event)
    SELECT sqlc.arg(into_execution)::bigint, s.event FROM spent s WHERE s.execution = sqlc.arg(source)::bigint
    UNION
    SELECT sqlc.arg(into_execution)::bigint, n.event FROM entry n
    WHERE n.execution = sqlc.arg(source)::bigint AND n.event IS NOT NULL
      AND (n.seq >= sqlc.arg(before)::bigint OR n.seq <= sqlc.arg(base)::bigint)
), reported AS (
    INSERT INTO status (organization, execution, key, value, set_at)
    SELECT e.organization, sqlc.arg(into_execution)::bigint, k.key, k.value, k.at
    FROM execution e, LATERAL (
        SELECT DISTINCT ON (all_keys.key) all_keys.key, all_keys.value, all_keys.at FROM (
            SELECT n.name AS key, n.value::jsonb AS value, n.recorded_at AS at, n.seq FROM entry n
            WHERE n.execution = e.id AND n.kind = 'status' AND n.seq < sqlc.arg(before)::bigint
            UNION ALL
            SELECT s.key, s.value, s.set_at, 0 FROM status s
            WHERE s.organization = e.organization AND s.execution = e.id AND NOT EXISTS (
                SELECT FROM entry n WHERE n.execution = e.id AND n.kind = 'status' AND n.name = s.key AND n.seq >= sqlc.arg(before)::bigint
            )
        ) AS all_keys
        ORDER BY all_keys.key, all_keys.seq DESC
    ) AS k
    WHERE e.id = sqlc.arg(source)::bigint AND k.value <> 'null'
)
INSERT INTO runnable (execution, organization)
SELECT e.id, e.organization FROM execution e WHERE e.id = sqlc.arg(into_execution)::bigint ON CONFLICT DO NOTHING;

-- name: TakeChannels :exec
-- Opens the channels of a history that was copied.
INSERT INTO channel (token, execution, organization)
SELECT entry.value #>> '{}', execution.id, execution.organization
FROM entry JOIN execution ON execution.id = entry.execution
WHERE entry.execution = $1 AND entry.kind = 'channel';

-- name: StandingOf :one
-- Where an execution that is locked stands.
SELECT turn, wakes, state, program FROM execution WHERE id = $1;

-- name: ChangeProgram :exec
-- Gives an execution other sources. What processes have of it in memory is out of date then.
UPDATE execution SET program = sqlc.arg(program), modules = sqlc.arg(modules)::text::json, turn = turn + 1, wakes = wakes + 1
WHERE id = sqlc.arg(id);

-- name: SaveProgramChange :exec
INSERT INTO program_change (organization, execution, last_seq, number, replaced, reason, changed_by, changed_at)
SELECT sqlc.arg(organization)::bigint, sqlc.arg(execution)::bigint, sqlc.arg(last_seq)::bigint,
    (SELECT count(*) + 1 FROM program_change c WHERE c.organization = sqlc.arg(organization)::bigint AND c.execution = sqlc.arg(execution)::bigint)::int,
    sqlc.arg(replaced)::bytea, sqlc.arg(reason)::text, sqlc.arg(changed_by)::text, sqlc.arg(changed_at)::timestamptz;

-- name: ProgramChanges :many
SELECT last_seq, replaced, reason, changed_by, changed_at FROM program_change WHERE organization = $1 AND execution = $2 ORDER BY number;
