-- name: RollbackPolicies :many
SELECT * FROM cd_application_policies WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]);

-- name: SaveRollbackPolicy :exec
INSERT INTO cd_application_policies (organization_id, application_id, rollback_on_failed, rollback_on_degraded, degraded_after_seconds)
VALUES (@organization_id, @application_id, @rollback_on_failed, @rollback_on_degraded, @degraded_after_seconds)
ON CONFLICT (organization_id, application_id) DO UPDATE
SET rollback_on_failed = excluded.rollback_on_failed, rollback_on_degraded = excluded.rollback_on_degraded, degraded_after_seconds = excluded.degraded_after_seconds;

-- name: ScheduleRollback :exec
-- Once for each rollout, and never for one that was itself made here (D13).
INSERT INTO cd_automatic_rollbacks (organization_id, rollout_id, cause, due_at)
SELECT @organization_id::bigint, @rollout_id::bigint, @cause::text, @due_at::timestamptz
WHERE NOT EXISTS (SELECT FROM cd_automatic_rollbacks m WHERE m.organization_id = @organization_id AND m.made_rollout_id = @rollout_id)
ON CONFLICT (organization_id, rollout_id) DO NOTHING;

-- name: DueRollback :one
SELECT id, rollout_id, cause FROM cd_automatic_rollbacks
WHERE organization_id = @organization_id AND state = 0 AND due_at <= @at
ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: SettleRollback :exec
UPDATE cd_automatic_rollbacks SET state = CASE WHEN @outcome::text = '' THEN 1 ELSE 2 END, outcome = @outcome, made_rollout_id = @made_rollout_id
WHERE organization_id = @organization_id AND id = @id AND state = 0;

-- name: OrganizationsWithDueRollbacks :many
-- Across organizations, on purpose: there is one worker for all.
SELECT organization_id::bigint FROM cd_organizations_with_due_rollbacks(@at) AS organization_id;
