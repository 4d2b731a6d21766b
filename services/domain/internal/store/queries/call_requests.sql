-- name: InsertCallRequest :many
-- The first report about a decision adds it.
INSERT INTO cd_call_requests (organization_id, workflow_id, call_id, rollout_id, function, state, policy, reason, approver_group, quorum, requester_may, expires_at, decision, request, sampled, created_at)
VALUES (@organization_id, @workflow_id, @call_id, (SELECT r.id FROM cd_rollouts r WHERE r.organization_id = @organization_id AND r.id = @rollout_id::bigint), @function, @state, @policy, @reason, @approver_group, @quorum, @requester_may, sqlc.narg(expires_at), @decision, @request, @sampled, @created_at)
ON CONFLICT (organization_id, call_id) DO NOTHING RETURNING id;

-- name: LockCallRequest :one
SELECT * FROM cd_call_requests WHERE organization_id = @organization_id AND id = @id FOR UPDATE;

-- name: LockCallRequestOfCall :one
SELECT * FROM cd_call_requests WHERE organization_id = @organization_id AND call_id = @call_id FOR UPDATE;

-- name: SaveCallRequest :exec
UPDATE cd_call_requests SET state = @state, policy = @policy, reason = @reason, decision = @decision, request = @request
WHERE organization_id = @organization_id AND id = @id;

-- name: RestateCallRequest :exec
-- The call that was permitted at once was not made, and policies have decided again.
UPDATE cd_call_requests SET state = @state, policy = @policy, reason = @reason, approver_group = @approver_group, quorum = @quorum,
    requester_may = @requester_may, expires_at = sqlc.narg(expires_at), decision = @decision, request = @request, sampled = false,
    created_at = @created_at
WHERE organization_id = @organization_id AND id = @id;

-- name: WithdrawCallRequests :exec
-- The run has ended: nobody waits for an answer any more.
UPDATE cd_call_requests SET state = 'withdrawn' WHERE organization_id = @organization_id AND workflow_id = @workflow_id AND state = 'pending';

-- name: CountPendingCallRequests :one
SELECT count(*) FROM cd_call_requests WHERE organization_id = @organization_id AND state = 'pending';

-- name: CallRequestsByID :many
SELECT * FROM cd_call_requests WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: PendingCallRequests :many
SELECT * FROM cd_call_requests WHERE organization_id = @organization_id AND state = 'pending' ORDER BY id DESC LIMIT 200;

-- name: CallRequests :many
SELECT * FROM cd_call_requests WHERE organization_id = @organization_id AND NOT sampled ORDER BY id DESC LIMIT 200;

-- name: CallRequestsSince :many
-- The latest first, for simulations, a page at a time.
SELECT * FROM cd_call_requests WHERE organization_id = @organization_id AND created_at >= @since AND (created_at, id) < (@before::timestamptz, @before_id::bigint)
ORDER BY created_at DESC, id DESC LIMIT 200;

-- name: CountTriedCallRequests :one
-- The calls of a run that were permitted at once, and that policies which are tried out would not have permitted.
SELECT count(*) FROM cd_call_requests WHERE organization_id = @organization_id AND workflow_id = @workflow_id AND state = 'permitted' AND quorum = 0 AND NOT sampled;

-- name: CountSampledCallRequests :one
-- Those since an instant, counted as far as a number.
SELECT count(*) FROM (
    SELECT 1 FROM cd_call_requests WHERE organization_id = @organization_id AND sampled AND created_at >= @since LIMIT @most::int
) AS counted;

-- name: CallRequestsByRollout :many
-- The latest of each rollout first, at most 100.
SELECT sqlc.embed(d) FROM unnest(@ids::bigint[]) AS r(id)
JOIN cd_call_requests d ON d.organization_id = @organization_id AND d.rollout_id = r.id AND NOT d.sampled
WHERE d.id >= COALESCE((SELECT o.id FROM cd_call_requests o WHERE o.organization_id = @organization_id AND o.rollout_id = r.id AND NOT o.sampled ORDER BY o.id DESC OFFSET 99 LIMIT 1), 0)
ORDER BY d.rollout_id, d.id DESC;

-- name: InsertCallAnswer :exec
INSERT INTO cd_call_answers (organization_id, call_request_id, approves, reason, principal_type, principal_id, principal_name, created_at)
VALUES (@organization_id, @call_request_id, @approves, @reason, @principal_type, @principal_id, @principal_name, @created_at);

-- name: CallAnswers :many
SELECT * FROM cd_call_answers WHERE organization_id = @organization_id AND call_request_id = ANY(@requests::bigint[]) ORDER BY id;
