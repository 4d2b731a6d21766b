-- name: FindExecution :one
SELECT id, ref, organization, workflow, state, error, program, labels, attempt, created_at, ended_at,
    greatest(last_seq, last.seq)::bigint AS last_seq, coalesce(last.recorded_at, created_at)::timestamptz AS updated_at,
    coalesce((SELECT g.number FROM generation g WHERE g.execution = execution.id ORDER BY g.number DESC LIMIT 1), 1)::int AS generation,
    coalesce((SELECT g.base_seq FROM generation g WHERE g.execution = execution.id ORDER BY g.number DESC LIMIT 1), 0)::bigint AS base_seq
FROM execution
LEFT JOIN LATERAL (SELECT entry.seq, entry.recorded_at FROM entry WHERE entry.execution = execution.id ORDER BY entry.seq DESC LIMIT 1) AS last ON true
WHERE organization = $1 AND workflow = $2;

-- name: Waiting :many
-- The open operations with their timers: waits, sleeps and calls in the order of branches.
SELECT
    timer.branch, timer.op, timer.opened_at, timer.due,
    call.function, call.location, call.agent, call.attempt, poll.function AS polled, poll.round, poll.deadline,
    coalesce(call.tries::text, '')::text AS tries,
    coalesce(array_agg(wait.type ORDER BY wait.type) FILTER (WHERE wait.type IS NOT NULL), '{}')::text[] AS types,
    coalesce(json_agg(wait.filter) FILTER (WHERE wait.type IS NOT NULL), '[]')::text AS filters
FROM timer
LEFT JOIN call USING (execution, branch, op)
LEFT JOIN poll USING (execution, branch, op)
LEFT JOIN wait USING (execution, branch, op)
WHERE timer.execution = $1
GROUP BY timer.branch, timer.op, timer.opened_at, timer.due, call.function, call.location, call.agent, call.attempt, poll.function, poll.round, poll.deadline,
    call.tries::text
ORDER BY timer.branch, timer.op;

-- name: History :many
SELECT execution, seq, branch, op, kind, name, hash, value, error, event, recorded_at, tries
FROM entry
WHERE execution = $1 AND seq > $2
ORDER BY seq
LIMIT $3;
