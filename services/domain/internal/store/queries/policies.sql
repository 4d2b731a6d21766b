-- name: RollbackPolicies :many
SELECT * FROM cd_application_policies WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]);

-- name: SaveRollbackPolicy :exec
INSERT INTO cd_application_policies (organization_id, application_id, rollback_on_failed, rollback_on_degraded, degraded_after_seconds, rollback_in_full)
VALUES (@organization_id, @application_id, @rollback_on_failed, @rollback_on_degraded, @degraded_after_seconds, @rollback_in_full)
ON CONFLICT (organization_id, application_id) DO UPDATE
SET rollback_on_failed = excluded.rollback_on_failed, rollback_on_degraded = excluded.rollback_on_degraded, degraded_after_seconds = excluded.degraded_after_seconds, rollback_in_full = excluded.rollback_in_full;

-- name: ScheduleRollback :exec
-- Once for each rollout, and never for one that was itself made here (D13). Until something has come of it, the clock may be
-- set anew, and a failure is not kept waiting by it.
INSERT INTO cd_automatic_rollbacks AS b (organization_id, rollout_id, cause, due_at)
SELECT @organization_id::bigint, @rollout_id::bigint, @cause::text, @due_at::timestamptz
WHERE NOT EXISTS (SELECT FROM cd_automatic_rollbacks m WHERE m.organization_id = @organization_id AND m.made_rollout_id = @rollout_id)
ON CONFLICT (organization_id, rollout_id) DO UPDATE SET cause = excluded.cause, due_at = excluded.due_at
WHERE b.state = 'pending' AND b.cause = 'degraded' AND (b.cause, b.due_at) IS DISTINCT FROM (excluded.cause, excluded.due_at);

-- name: StopRollbackClock :exec
UPDATE cd_automatic_rollbacks SET due_at = NULL
WHERE organization_id = @organization_id AND rollout_id = @rollout_id AND state = 'pending' AND cause = 'degraded' AND due_at IS NOT NULL;

-- name: DueRollback :one
-- The rollout is locked with it: setting the clock locks the rollout and then writes here, so waiting for the rollout
-- while this row is locked could be a deadlock.
SELECT b.id, b.rollout_id, b.cause FROM cd_automatic_rollbacks b
JOIN cd_rollouts r ON r.organization_id = b.organization_id AND r.id = b.rollout_id
WHERE b.organization_id = @organization_id AND b.state = 'pending' AND b.due_at <= @at::timestamptz
ORDER BY b.due_at, b.id LIMIT 1 FOR NO KEY UPDATE OF b, r SKIP LOCKED;

-- name: AutomaticRollbacks :many
-- What policies want, or wanted, of rollouts. A clock that stands is left out: nothing is degraded.
SELECT * FROM cd_automatic_rollbacks
WHERE organization_id = @organization_id AND rollout_id = ANY(@ids::bigint[]) AND (state <> 'pending' OR due_at IS NOT NULL);

-- name: SettleRollback :exec
UPDATE cd_automatic_rollbacks SET state = CASE WHEN @outcome::text = '' THEN 'started' ELSE 'dropped' END, outcome = @outcome, made_rollout_id = @made_rollout_id
WHERE organization_id = @organization_id AND id = @id AND state = 'pending';

-- name: OrganizationsWithDueRollbacks :many
-- Across organizations, on purpose: there is one worker for all.
SELECT organization_id::bigint FROM cd_organizations_with_due_rollbacks(@at) AS organization_id;

-- name: SaveRolloutPolicy :exec
-- The columns about rollbacks keep what they have, or get their defaults.
INSERT INTO cd_application_policies (organization_id, application_id, rollback_on_failed, rollback_on_degraded, degraded_after_seconds, on_failure, on_newer)
VALUES (@organization_id, @application_id, true, true, 1800, @on_failure, @on_newer)
ON CONFLICT (organization_id, application_id) DO UPDATE SET on_failure = excluded.on_failure, on_newer = excluded.on_newer;

-- name: InsertClosing :exec
INSERT INTO cd_rollout_closings (organization_id, rollout_id, reason, due_at) VALUES (@organization_id, @rollout_id, @reason, @due_at)
ON CONFLICT (organization_id, rollout_id) DO UPDATE SET reason = excluded.reason WHERE NOT cd_rollout_closings.settled;

-- name: DueClosing :one
SELECT id, rollout_id, reason FROM cd_rollout_closings
WHERE organization_id = @organization_id AND NOT settled AND due_at <= @at
ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: SettleClosing :exec
UPDATE cd_rollout_closings SET settled = true WHERE organization_id = @organization_id AND rollout_id = @rollout_id AND NOT settled;

-- name: OrganizationsWithDueClosings :many
-- Across organizations, on purpose: there is one worker for all.
SELECT organization_id::bigint FROM cd_organizations_with_due_closings(@at) AS organization_id;

-- name: SaveQueuedRollout :one
-- The latest one asked for waits. The one before it was dropped by now, unless two were asked for at once.
INSERT INTO cd_queued_rollouts (organization_id, application_id, version_set_id, principal_type, principal_id, reason, requested_at, environments, trigger_id, cause, strategy, inputs,
    comparison_id, compares_until)
VALUES (@organization_id, @application_id, @version_set_id, @principal_type, @principal_id, @reason, @requested_at, @environments, @trigger_id, @cause, @strategy, @inputs,
    @comparison_id, @compares_until)
ON CONFLICT (organization_id, application_id) WHERE state = 'pending' DO UPDATE
SET version_set_id = excluded.version_set_id, principal_type = excluded.principal_type, principal_id = excluded.principal_id,
    reason = excluded.reason, requested_at = excluded.requested_at, environments = excluded.environments, trigger_id = excluded.trigger_id,
    cause = excluded.cause, strategy = excluded.strategy, inputs = excluded.inputs, comparison_id = excluded.comparison_id, compares_until = excluded.compares_until
RETURNING id;

-- name: QueuedRollouts :many
SELECT * FROM cd_queued_rollouts WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]) AND state = 'pending';

-- name: LockWaitingRollout :many
-- The one that waits for an application, which another one is about to take the place of.
SELECT * FROM cd_queued_rollouts WHERE organization_id = @organization_id AND application_id = @application_id AND state = 'pending' FOR UPDATE;

-- name: LockQueuedRollout :one
SELECT * FROM cd_queued_rollouts WHERE organization_id = @organization_id AND id = @id FOR UPDATE;

-- name: QueuedRolloutsByID :many
SELECT * FROM cd_queued_rollouts WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: LastQueuedRollouts :many
-- The latest one of each application that has left the queue.
SELECT q.* FROM (SELECT @organization_id::bigint AS organization_id, unnest(@ids::bigint[]) AS id) a
CROSS JOIN LATERAL (SELECT * FROM cd_queued_rollouts e WHERE e.organization_id = a.organization_id AND e.application_id = a.id AND e.state <> 'pending'
    ORDER BY e.id DESC LIMIT 1) q;

-- name: WaitingRollouts :many
-- Those that wait, of all applications or of one, the first to begin first.
SELECT * FROM cd_queued_rollouts WHERE organization_id = @organization_id AND state = 'pending' AND (@application_id::bigint = 0 OR application_id = @application_id)
ORDER BY requested_at, id LIMIT @most;

-- name: FreeQueuedRollout :one
SELECT * FROM cd_queued_rollouts q
WHERE q.organization_id = @organization_id AND q.state = 'pending' AND (q.compares_until IS NULL OR q.compares_until <= @at)
  AND NOT EXISTS (SELECT FROM cd_rollouts r WHERE r.organization_id = @organization_id AND r.application_id = q.application_id AND r.state IN ('pending', 'in_progress', 'paused'))
ORDER BY q.requested_at, q.id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: CompareQueuedRollout :exec
UPDATE cd_queued_rollouts SET comparison_id = @comparison_id, compares_until = @compares_until
WHERE organization_id = @organization_id AND id = @id AND state = 'pending';

-- name: SettleComparison :exec
-- What waits for it may begin.
UPDATE cd_queued_rollouts SET compares_until = NULL
WHERE organization_id = @organization_id AND comparison_id = @comparison_id AND state = 'pending' AND compares_until IS NOT NULL;

-- name: SettleQueuedRollout :execrows
UPDATE cd_queued_rollouts SET state = CASE WHEN @outcome::text = '' THEN 'started' ELSE 'dropped' END, outcome = @outcome, made_rollout_id = @made_rollout_id,
    ended_at = @ended_at, cancelled_by_type = @cancelled_by_type, cancelled_by_id = @cancelled_by_id
WHERE organization_id = @organization_id AND id = @id AND state = 'pending';

-- name: ForgetDroppedRollouts :one
SELECT cd_forget_dropped_rollouts(@application_id::bigint)::bigint;

-- name: OrganizationsWithFreeQueue :many
-- Across organizations, on purpose: there is one worker for all.
SELECT organization_id::bigint FROM cd_organizations_with_free_queue() AS organization_id;
