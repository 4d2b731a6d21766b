-- name: LockScheduleName :exec
-- Serializes the registrations of an organization's schedules.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || '/schedule/' || sqlc.arg(organization)::bigint, 0));

-- name: CountSchedules :one
SELECT count(*) FROM (SELECT FROM schedule WHERE organization = sqlc.arg(organization) LIMIT sqlc.arg(most)) AS s;

-- name: FindSchedule :one
SELECT organization, id, name, version, spec, overlap, catch_up, program, digest, paused, note, next_due, last_due, changed_by, created_at,
    changed_at, started, skipped, missed, refused, turn
FROM schedule WHERE organization = $1 AND name = $2;

-- name: LockSchedule :one
SELECT organization, id, name, version, spec, overlap, catch_up, program, digest, paused, note, next_due, last_due, changed_by, created_at,
    changed_at, started, skipped, missed, refused, turn
FROM schedule WHERE organization = $1 AND name = $2 FOR UPDATE;

-- name: ListSchedules :many
SELECT organization, id, name, version, spec, overlap, catch_up, program, digest, paused, note, next_due, last_due, changed_by, created_at,
    changed_at, started, skipped, missed, refused, turn
FROM schedule WHERE organization = $1 AND id > $2 ORDER BY id LIMIT $3;

-- name: SaveSchedule :one
INSERT INTO schedule (
    organization, name, version, spec, overlap, catch_up, program, modules, inputs, secrets, labels, digest, paused, note, next_due,
    attend_at, changed_by, created_at, changed_at
) VALUES ($1, $2, 1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $17)
RETURNING id;

-- name: ReplaceSchedule :exec
-- What is open, counted and paused stays.
UPDATE schedule SET
    version = version + 1, spec = $3, overlap = $4, catch_up = $5, program = $6, modules = $7, inputs = $8, secrets = $9, labels = $10,
    digest = $11, next_due = $12, attend_at = $13, changed_by = $14, changed_at = $13, turn = turn + 1
WHERE organization = $1 AND id = $2;

-- name: ChangeSchedule :exec
UPDATE schedule SET paused = $3, note = $4, next_due = $5, changed_by = $6, changed_at = $7, attend_at = sqlc.arg(attend_at)::timestamptz, turn = turn + 1
WHERE organization = $1 AND id = $2;

-- name: AddFires :execrows
-- Due times that are to be started, unless they have a run, or will get one.
INSERT INTO schedule_fire (organization, schedule, due, state, backfill, overlap, count, detail, workflow)
SELECT sqlc.arg(organization)::bigint, sqlc.arg(schedule)::bigint, unnest(sqlc.arg(dues)::timestamptz[]), 'waiting', true, sqlc.arg(overlap)::text, 1, '',
    unnest(sqlc.arg(workflows)::text[])
ON CONFLICT (organization, schedule, due) DO UPDATE SET
    state = 'waiting', backfill = true, overlap = excluded.overlap, count = 1, detail = '', workflow = excluded.workflow
WHERE schedule_fire.state IN ('skipped', 'missed', 'refused');

-- name: CountWaiting :one
SELECT count(*) FROM (
    SELECT FROM schedule_fire WHERE organization = $1 AND schedule = $2 AND state IN ('waiting', 'starting', 'started') AND state = 'waiting'
    LIMIT sqlc.arg(most)
) AS f;

-- name: DeleteSchedule :execrows
DELETE FROM schedule WHERE organization = $1 AND name = $2;

-- name: Fires :many
-- The outcomes of the last due times of a schedule, with the runs.
SELECT f.due, f.state, f.backfill, f.overlap, f.count, f.detail, f.workflow, e.state AS run, e.error AS run_error, e.ended_at
FROM schedule_fire f LEFT JOIN execution e ON e.organization = f.organization AND e.workflow = f.workflow
WHERE f.organization = $1 AND f.schedule = $2
ORDER BY f.due DESC
LIMIT $3;

-- name: TakeSchedules :many
-- Locks the schedules that are to be looked at.
SELECT organization, id, name, version, spec, overlap, catch_up, program, digest, paused, note, next_due, last_due, changed_by, created_at,
    changed_at, started, skipped, missed, refused, turn
FROM schedule WHERE attend_at <= sqlc.arg(now)::timestamptz ORDER BY attend_at LIMIT sqlc.arg(most) FOR UPDATE SKIP LOCKED;

-- name: OpenFires :many
-- The open due times of schedules, with their runs. With the policy allow, runs that were started do not matter.
SELECT f.schedule, f.due, f.state, f.backfill, f.overlap, f.count, f.detail, f.workflow, e.state AS run
FROM (SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(schedules)::bigint[]) AS schedule,
    unnest(sqlc.arg(allows)::boolean[]) AS allow) AS u
JOIN LATERAL (
    SELECT o.* FROM schedule_fire o
    WHERE o.organization = u.organization AND o.schedule = u.schedule AND o.state IN ('waiting', 'starting', 'started')
      AND (NOT u.allow OR o.state <> 'started')
    ORDER BY o.state = 'waiting', o.due LIMIT sqlc.arg(most)
) AS f ON true
LEFT JOIN execution e ON e.organization = f.organization AND e.workflow = f.workflow
ORDER BY f.schedule, f.due;

-- name: SaveFires :exec
INSERT INTO schedule_fire (organization, schedule, due, state, backfill, overlap, count, detail, workflow)
SELECT unnest(sqlc.arg(organizations)::bigint[]), unnest(sqlc.arg(schedules)::bigint[]), unnest(sqlc.arg(dues)::timestamptz[]),
    unnest(sqlc.arg(states)::text[]), unnest(sqlc.arg(backfills)::boolean[]), unnest(sqlc.arg(policies)::text[]), unnest(sqlc.arg(counts)::bigint[]),
    unnest(sqlc.arg(details)::text[]), unnest(sqlc.arg(workflows)::text[])
ON CONFLICT (organization, schedule, due) DO UPDATE SET state = excluded.state, detail = excluded.detail
WHERE schedule_fire.state IN ('waiting', 'starting', 'started');

-- name: SaveTurns :exec
UPDATE schedule SET
    next_due = nullif(u.next_due, 'epoch'), last_due = greatest(schedule.last_due, nullif(u.last_due, 'epoch')),
    attend_at = nullif(u.attend_at, 'epoch'), skipped = schedule.skipped + u.skipped, missed = schedule.missed + u.missed,
    turn = schedule.turn + 1
FROM (SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(schedules)::bigint[]) AS id,
    unnest(sqlc.arg(next_dues)::timestamptz[]) AS next_due, unnest(sqlc.arg(last_dues)::timestamptz[]) AS last_due,
    unnest(sqlc.arg(attends)::timestamptz[]) AS attend_at, unnest(sqlc.arg(skips)::bigint[]) AS skipped,
    unnest(sqlc.arg(misses)::bigint[]) AS missed) AS u
WHERE schedule.organization = u.organization AND schedule.id = u.id;

-- name: LoadSchedules :many
SELECT organization, id, name, inputs, secrets, labels, program, modules FROM schedule
WHERE organization = ANY (sqlc.arg(organizations)::bigint[]) AND id = ANY (sqlc.arg(schedules)::bigint[]);

-- name: FinishFires :exec
-- The outcomes of starts, counted once.
WITH finished AS (
    UPDATE schedule_fire SET state = u.state, detail = u.detail
    FROM (SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(schedules)::bigint[]) AS schedule,
        unnest(sqlc.arg(dues)::timestamptz[]) AS due, unnest(sqlc.arg(states)::text[]) AS state, unnest(sqlc.arg(details)::text[]) AS detail) AS u
    WHERE schedule_fire.organization = u.organization AND schedule_fire.schedule = u.schedule AND schedule_fire.due = u.due
      AND schedule_fire.state = 'starting'
    RETURNING schedule_fire.organization, schedule_fire.schedule, schedule_fire.state
), counted AS (
    SELECT f.organization, f.schedule, count(*) FILTER (WHERE f.state = 'started') AS started, count(*) FILTER (WHERE f.state = 'refused') AS refused
    FROM finished f GROUP BY f.organization, f.schedule
)
UPDATE schedule SET started = schedule.started + counted.started, refused = schedule.refused + counted.refused
FROM counted WHERE schedule.organization = counted.organization AND schedule.id = counted.schedule;

-- name: SettleTurns :exec
-- Sets when schedules are looked at next, unless they were looked at or changed since.
UPDATE schedule SET attend_at = nullif(u.attend_at, 'epoch')
FROM (SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(schedules)::bigint[]) AS id,
    unnest(sqlc.arg(turns)::bigint[]) AS turn, unnest(sqlc.arg(attends)::timestamptz[]) AS attend_at) AS u
WHERE schedule.organization = u.organization AND schedule.id = u.id AND schedule.turn = u.turn;

-- name: ForgetFires :exec
-- Deletes due times of schedules behind the last ones, unless they are open: then their run is under way.
DELETE FROM schedule_fire d
USING (SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(schedules)::bigint[]) AS schedule) AS u
WHERE d.organization = u.organization AND d.schedule = u.schedule AND d.state NOT IN ('waiting', 'starting')
  AND d.due < (SELECT l.due FROM schedule_fire l WHERE l.organization = u.organization AND l.schedule = u.schedule ORDER BY l.due DESC OFFSET sqlc.arg(kept) LIMIT 1)
  AND (d.state <> 'started' OR NOT EXISTS (SELECT FROM execution e WHERE e.organization = d.organization AND e.workflow = d.workflow AND e.state IN ('running', 'parked')));

-- name: NextAttention :one
SELECT coalesce((SELECT s.attend_at FROM schedule s WHERE s.attend_at IS NOT NULL ORDER BY s.attend_at LIMIT 1), 'epoch')::timestamptz AS at;
