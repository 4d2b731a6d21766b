-- name: DueTimers :many
-- The timers that are due, and after them the first that is not yet.
SELECT found.execution, found.due FROM (
    (SELECT t.execution, t.due FROM timer t WHERE NOT t.fired AND t.due <= sqlc.arg(now) ORDER BY t.due LIMIT sqlc.arg(most))
    UNION ALL
    (SELECT n.execution, n.due FROM timer n WHERE NOT n.fired AND n.due > sqlc.arg(now) ORDER BY n.due LIMIT 1)
) found ORDER BY found.due;

-- name: FireTimers :many
UPDATE timer SET fired = true WHERE execution = ANY (sqlc.arg(ids)::bigint[]) AND NOT fired AND due <= sqlc.arg(now)
RETURNING execution, branch, op;

-- name: NextCalls :many
UPDATE call SET
    attempt = call.attempt + 1,
    next_at = sqlc.arg(now)::timestamptz
        + least(sqlc.arg(longest)::interval, sqlc.arg(first)::interval * power(2, least(call.attempt, 20)))
FROM execution
WHERE execution.id = ANY (ARRAY[call.execution]) AND call.id = ANY (ARRAY(
    SELECT c.id FROM call c
    WHERE c.next_at <= sqlc.arg(now) AND c.deadline > sqlc.arg(now)
    ORDER BY c.next_at, c.id
    LIMIT sqlc.arg(most)
    FOR UPDATE SKIP LOCKED
))
RETURNING call.id, call.function, call.args, call.agent, call.attempt, call.deadline, execution.workflow, execution.organization,
    coalesce((SELECT parent FROM trace WHERE trace.execution = call.execution), '')::text AS trace;

-- name: FindCall :one
SELECT execution, branch, op, agent, location, no_retry, retry, refused, deadline, holder, attempt, tries FROM call WHERE id = $1;

-- name: PostponeCall :exec
UPDATE call SET next_at = $2, refused = refused + 1, tries = $3 WHERE id = $1;

-- name: DeliverAnswer :many
-- The first answer of a call that is still open counts, and the call is sent to nobody any more. There is no row if no such call is known,
-- or if a session is given that does not have it.
WITH held AS (
    SELECT c.execution, c.branch, c.op, c.tries FROM call c
    WHERE c.id = sqlc.arg(id) AND (sqlc.narg(session)::text IS NULL OR c.holder = sqlc.narg(session))
), answered AS (
    INSERT INTO delivery (execution, branch, op, kind, value, error, tries)
    SELECT held.execution, held.branch, held.op, 1, sqlc.narg(value), sqlc.narg(error), held.tries FROM held
    ON CONFLICT DO NOTHING
    RETURNING execution
), closed AS (
    UPDATE call SET next_at = NULL, offer_at = NULL FROM answered WHERE call.id = sqlc.arg(id) AND call.execution = answered.execution
)
SELECT held.execution, EXISTS (SELECT FROM answered) AS first FROM held;
