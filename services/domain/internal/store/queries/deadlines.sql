-- name: InsertDeadline :exec
-- One of an abort that is open already keeps running: who asks again does not get more time.
INSERT INTO cd_rollout_deadlines (organization_id, rollout_id, kind, environment_id, gate_id, seconds, action, counts_waiting, at_work, principal_type, principal_id, reason, started_at, due_at)
VALUES (@organization_id, @rollout_id, @kind, @environment_id, @gate_id, @seconds, @action, @counts_waiting, @at_work, @principal_type, @principal_id, @reason, @started_at, @due_at)
ON CONFLICT (organization_id, rollout_id, kind, gate_id) WHERE outcome = '' OR kind <> 'abort' DO UPDATE
SET action = excluded.action, principal_type = excluded.principal_type, principal_id = excluded.principal_id, reason = excluded.reason;

-- name: RolloutWithDueDeadline :one
-- The lock is the rollout's, as everywhere before anything under it.
SELECT r.id FROM cd_rollout_deadlines d
JOIN cd_rollouts r ON r.organization_id = d.organization_id AND r.id = d.rollout_id
WHERE d.organization_id = @organization_id AND d.outcome = '' AND d.due_at <= @at
ORDER BY d.due_at, d.id LIMIT 1 FOR NO KEY UPDATE OF r SKIP LOCKED;

-- name: Deadlines :many
SELECT * FROM cd_rollout_deadlines WHERE organization_id = @organization_id AND rollout_id = ANY(@ids::bigint[])
ORDER BY rollout_id, CASE kind WHEN 'abort' THEN 2 WHEN 'rollout' THEN 0 ELSE 1 END, id;

-- name: SaveDeadline :exec
UPDATE cd_rollout_deadlines SET due_at = @due_at, outcome = @outcome WHERE organization_id = @organization_id AND id = @id;

-- name: OrganizationsWithDueDeadlines :many
-- Across organizations, on purpose: there is one worker for all.
SELECT organization_id::bigint FROM cd_organizations_with_due_deadlines(@at) AS organization_id;

-- name: NoticeAbsence :one
-- Across organizations, on purpose: the service is stopped for all.
SELECT cd_notice_absence(@at)::bigint;
