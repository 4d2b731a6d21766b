-- name: ListApplications :many
-- In the order in which they were made.
SELECT * FROM cd_applications
WHERE organization_id = @organization_id AND id > @after AND (@contains::text = '' OR position(lower(@contains::text) in lower(name)) > 0) AND archived_at IS NULL
ORDER BY id LIMIT @at_most;

-- name: ListApplicationsByName :many
SELECT * FROM cd_applications
WHERE organization_id = @organization_id AND name > @after_name AND (@contains::text = '' OR position(lower(@contains::text) in lower(name)) > 0) AND archived_at IS NULL
ORDER BY name LIMIT @at_most;

-- name: ListEnvironments :many
SELECT * FROM cd_environments
WHERE organization_id = @organization_id AND id > @after AND (@contains::text = '' OR position(lower(@contains::text) in lower(name)) > 0) AND archived_at IS NULL
  AND (cardinality(@tiers::text[]) = 0 OR tier = ANY(@tiers::text[]))
ORDER BY id LIMIT @at_most;

-- name: ListRollouts :many
SELECT r.* FROM cd_rollouts r
WHERE r.organization_id = @organization_id AND r.id < @before
  AND (@application_id::bigint = 0 OR r.application_id = @application_id)
  AND (cardinality(@states::smallint[]) = 0 OR r.state = ANY(@states::smallint[]))
  AND (@environment_id::bigint = 0 OR EXISTS (SELECT FROM cd_rollout_environments e
      WHERE e.organization_id = r.organization_id AND e.rollout_id = r.id AND e.environment_id = @environment_id))
ORDER BY r.id DESC LIMIT @at_most;

-- name: ListActiveRollouts :many
-- ListRollouts of those that are not over: few among many, so they have an index of their own, which a plan can only take
-- when it sees the states.
SELECT r.* FROM cd_rollouts r
WHERE r.organization_id = @organization_id AND r.id < @before AND r.state IN (0, 1, 2) AND r.state = ANY(@states::smallint[])
  AND (@application_id::bigint = 0 OR r.application_id = @application_id)
  AND (@environment_id::bigint = 0 OR EXISTS (SELECT FROM cd_rollout_environments e
      WHERE e.organization_id = r.organization_id AND e.rollout_id = r.id AND e.environment_id = @environment_id))
ORDER BY r.id DESC LIMIT @at_most;

-- name: RolloutsAsking :many
-- Rollouts that are not over and have asked for an approval, whether or not it has been answered.
SELECT r.id FROM cd_rollouts r
WHERE r.organization_id = @organization_id AND r.state IN (0, 1, 2) AND r.id > @after
  AND EXISTS (SELECT FROM cd_rollout_transitions t WHERE t.organization_id = r.organization_id AND t.rollout_id = r.id AND t.event = 'request_approval')
ORDER BY r.id LIMIT @at_most;

-- name: JournalSince :many
-- The journal of the whole organization, between two positions: what is above the first, up to the second.
SELECT j.id, j.kind, j.subject_id, j.rollout_id, j.from_state, j.to_state, j.event, j.gate_id, j.principal_type, j.principal_id, j.reason, j.triggered_by, j.created_at
FROM (
    (SELECT t.id, 'rollout'::text AS kind, t.rollout_id AS subject_id, t.rollout_id, t.from_state, t.to_state, t.event, t.gate_id,
            t.principal_type, t.principal_id, t.reason, t.triggered_by, t.created_at
     FROM cd_rollout_transitions t
     WHERE t.organization_id = @organization_id AND t.id > @after AND t.id <= @up_to ORDER BY t.id LIMIT @at_most)
    UNION ALL
    (SELECT u.id, 'rolloutenvironment'::text, u.rollout_environment_id, e.rollout_id, u.from_state, u.to_state, u.event, NULL::text,
            u.principal_type, u.principal_id, u.reason, u.triggered_by, u.created_at
     FROM cd_rollout_environment_transitions u
     JOIN cd_rollout_environments e ON e.organization_id = u.organization_id AND e.id = u.rollout_environment_id
     WHERE u.organization_id = @organization_id AND u.id > @after AND u.id <= @up_to ORDER BY u.id LIMIT @at_most)
    UNION ALL
    (SELECT v.id, 'deployment'::text, v.deployment_id, f.rollout_id, v.from_state, v.to_state, v.event, v.gate_id,
            v.principal_type, v.principal_id, v.reason, v.triggered_by, v.created_at
     FROM cd_deployment_transitions v
     JOIN cd_deployments d ON d.organization_id = v.organization_id AND d.id = v.deployment_id
     JOIN cd_rollout_environments f ON f.organization_id = d.organization_id AND f.id = d.rollout_environment_id
     WHERE v.organization_id = @organization_id AND v.id > @after AND v.id <= @up_to ORDER BY v.id LIMIT @at_most)
) j
ORDER BY j.id LIMIT @at_most;

-- name: JournalHorizon :one
-- The last position that can be seen, and which transactions are under way. Positions are given out before the commit, so
-- one below the last may still come; when every transaction of now has ended, none will.
SELECT GREATEST(
    (SELECT COALESCE(max(t.id), 0) FROM cd_rollout_transitions t WHERE t.organization_id = @organization_id),
    (SELECT COALESCE(max(u.id), 0) FROM cd_rollout_environment_transitions u WHERE u.organization_id = @organization_id),
    (SELECT COALESCE(max(v.id), 0) FROM cd_deployment_transitions v WHERE v.organization_id = @organization_id)
)::bigint AS position,
pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next;
