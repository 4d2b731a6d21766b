-- Lists are read in either direction, by one of two keys, between two of its values. Direction and key are parameters, for one
-- statement each: they are planned with their values in sight (PlanForValues), so conditions that do not
-- apply are left out of the plan, and the others use an index. An empty name is below all others; as the upper end it means no limit.

-- name: ListApplications :many
SELECT a.* FROM cd_applications a
WHERE a.organization_id = @organization_id AND a.id > @above AND a.id < @below
  AND a.name > @above_name AND (@below_name::text = '' OR a.name < @below_name::text)
  AND (NOT @among::boolean OR a.id = ANY(@applications::bigint[]))
  AND (@contains::text = '' OR position(@contains::text in lower(a.name)) > 0) AND a.archived_at IS NULL
  AND (sqlc.narg('rolled_out')::boolean IS NULL OR EXISTS (SELECT FROM cd_rollouts r
      WHERE r.organization_id = a.organization_id AND r.application_id = a.id) = sqlc.narg('rolled_out')::boolean)
ORDER BY CASE WHEN @by_name::boolean AND NOT @falling::boolean THEN a.name END, CASE WHEN @by_name::boolean AND @falling::boolean THEN a.name END DESC,
         CASE WHEN NOT @by_name::boolean AND NOT @falling::boolean THEN a.id END, CASE WHEN NOT @by_name::boolean AND @falling::boolean THEN a.id END DESC
LIMIT @at_most;

-- name: CountApplications :one
SELECT count(*) FROM cd_applications a
WHERE a.organization_id = @organization_id
  AND (@contains::text = '' OR position(lower(@contains::text) in lower(a.name)) > 0) AND a.archived_at IS NULL
  AND (sqlc.narg('rolled_out')::boolean IS NULL OR EXISTS (SELECT FROM cd_rollouts r
      WHERE r.organization_id = a.organization_id AND r.application_id = a.id) = sqlc.narg('rolled_out')::boolean);

-- name: ListEnvironments :many
SELECT * FROM cd_environments
WHERE organization_id = @organization_id AND id > @above AND id < @below
  AND name > @above_name AND (@below_name::text = '' OR name < @below_name::text)
  AND (@contains::text = '' OR position(lower(@contains::text) in lower(name)) > 0 OR position(lower(@contains::text) in lower(display_name)) > 0)
  AND archived_at IS NULL
  AND (cardinality(@tiers::text[]) = 0 OR tier = ANY(@tiers::text[]))
  AND (cardinality(@readiness::text[]) = 0 OR readiness = ANY(@readiness::text[]))
ORDER BY CASE WHEN @by_name::boolean AND NOT @falling::boolean THEN name END, CASE WHEN @by_name::boolean AND @falling::boolean THEN name END DESC,
         CASE WHEN NOT @by_name::boolean AND NOT @falling::boolean THEN id END, CASE WHEN NOT @by_name::boolean AND @falling::boolean THEN id END DESC
LIMIT @at_most;

-- name: CountEnvironments :one
SELECT count(*) FROM cd_environments
WHERE organization_id = @organization_id
  AND (@contains::text = '' OR position(lower(@contains::text) in lower(name)) > 0 OR position(lower(@contains::text) in lower(display_name)) > 0)
  AND archived_at IS NULL
  AND (cardinality(@tiers::text[]) = 0 OR tier = ANY(@tiers::text[]))
  AND (cardinality(@readiness::text[]) = 0 OR readiness = ANY(@readiness::text[]));

-- name: ListRollouts :many
SELECT r.* FROM cd_rollouts r
WHERE r.organization_id = @organization_id AND r.id > @above AND r.id < @below
  AND (@application_id::bigint = 0 OR r.application_id = @application_id)
  AND (cardinality(@states::text[]) = 0 OR r.state = ANY(@states::text[]))
  AND (@environment_id::bigint = 0 OR EXISTS (SELECT FROM cd_rollout_environments e
      WHERE e.organization_id = r.organization_id AND e.rollout_id = r.id AND e.environment_id = @environment_id))
ORDER BY CASE WHEN NOT @falling::boolean THEN r.id END, CASE WHEN @falling::boolean THEN r.id END DESC
LIMIT @at_most;

-- name: ListRolloutsByFinish :many
-- Those that are not over come after all others. The day is what an index of these has for never.
SELECT r.* FROM cd_rollouts r
WHERE r.organization_id = @organization_id
  AND (COALESCE(r.finished_at, '9999-12-31 00:00:00+00'::timestamptz), r.id) > (@above_at::timestamptz, @above::bigint)
  AND (COALESCE(r.finished_at, '9999-12-31 00:00:00+00'::timestamptz), r.id) < (@below_at::timestamptz, @below::bigint)
  AND (@application_id::bigint = 0 OR r.application_id = @application_id)
  AND (cardinality(@states::text[]) = 0 OR r.state = ANY(@states::text[]))
  AND (@environment_id::bigint = 0 OR EXISTS (SELECT FROM cd_rollout_environments e
      WHERE e.organization_id = r.organization_id AND e.rollout_id = r.id AND e.environment_id = @environment_id))
ORDER BY CASE WHEN NOT @falling::boolean THEN COALESCE(r.finished_at, '9999-12-31 00:00:00+00'::timestamptz) END,
         CASE WHEN @falling::boolean THEN COALESCE(r.finished_at, '9999-12-31 00:00:00+00'::timestamptz) END DESC,
         CASE WHEN NOT @falling::boolean THEN r.id END, CASE WHEN @falling::boolean THEN r.id END DESC
LIMIT @at_most;

-- name: CountRollouts :one
SELECT count(*) FROM cd_rollouts r
WHERE r.organization_id = @organization_id
  AND (@application_id::bigint = 0 OR r.application_id = @application_id)
  AND (cardinality(@states::text[]) = 0 OR r.state = ANY(@states::text[]))
  AND (@environment_id::bigint = 0 OR EXISTS (SELECT FROM cd_rollout_environments e
      WHERE e.organization_id = r.organization_id AND e.rollout_id = r.id AND e.environment_id = @environment_id));

-- name: ListActiveRollouts :many
-- ListRollouts of those that are not over: few among many, so they have an index of their own, which a plan can only take
-- when it sees the states.
SELECT r.* FROM cd_rollouts r
WHERE r.organization_id = @organization_id AND r.id > @above AND r.id < @below AND r.state IN ('pending', 'in_progress', 'paused') AND r.state = ANY(@states::text[])
  AND (@application_id::bigint = 0 OR r.application_id = @application_id)
  AND (@environment_id::bigint = 0 OR EXISTS (SELECT FROM cd_rollout_environments e
      WHERE e.organization_id = r.organization_id AND e.rollout_id = r.id AND e.environment_id = @environment_id))
ORDER BY CASE WHEN NOT @falling::boolean THEN r.id END, CASE WHEN @falling::boolean THEN r.id END DESC
LIMIT @at_most;

-- name: RolloutsAsking :many
-- Rollouts that are not over and have asked for an approval, whether or not it has been answered.
SELECT r.id FROM cd_rollouts r
WHERE r.organization_id = @organization_id AND r.asked AND r.state IN ('pending', 'in_progress', 'paused') AND r.id > @above AND r.id < @below
ORDER BY CASE WHEN NOT @falling::boolean THEN r.id END, CASE WHEN @falling::boolean THEN r.id END DESC
LIMIT @at_most;

-- name: JournalBetween :many
-- The journal of the whole organization, between two positions: what is above the first and below the second.
SELECT j.id, j.kind, j.subject_id, j.rollout_id, j.from_state, j.to_state, j.event, j.gate_id, j.principal_type, j.principal_id, j.reason, j.triggered_by, j.conditions, j.breach, j.created_at
FROM (
    (SELECT t.id, 'rollout'::text AS kind, t.rollout_id AS subject_id, t.rollout_id, t.from_state, t.to_state, t.event, t.gate_id,
            t.principal_type, t.principal_id, t.reason, t.triggered_by, t.conditions, t.breach, t.created_at
     FROM cd_rollout_transitions t
     WHERE t.organization_id = @organization_id AND t.id > @above AND t.id < @below
     ORDER BY CASE WHEN NOT @falling::boolean THEN t.id END, CASE WHEN @falling::boolean THEN t.id END DESC LIMIT @at_most)
    UNION ALL
    (SELECT u.id, 'rolloutenvironment'::text, u.rollout_environment_id, e.rollout_id, u.from_state, u.to_state, u.event, NULL::text,
            u.principal_type, u.principal_id, u.reason, u.triggered_by, NULL::jsonb, false, u.created_at
     FROM cd_rollout_environment_transitions u
     JOIN cd_rollout_environments e ON e.organization_id = u.organization_id AND e.id = u.rollout_environment_id
     WHERE u.organization_id = @organization_id AND u.id > @above AND u.id < @below
     ORDER BY CASE WHEN NOT @falling::boolean THEN u.id END, CASE WHEN @falling::boolean THEN u.id END DESC LIMIT @at_most)
    UNION ALL
    (SELECT v.id, 'deployment'::text, v.deployment_id, f.rollout_id, v.from_state, v.to_state, v.event, v.gate_id,
            v.principal_type, v.principal_id, v.reason, v.triggered_by, NULL::jsonb, false, v.created_at
     FROM cd_deployment_transitions v
     JOIN cd_deployments d ON d.organization_id = v.organization_id AND d.id = v.deployment_id
     JOIN cd_rollout_environments f ON f.organization_id = d.organization_id AND f.id = d.rollout_environment_id
     WHERE v.organization_id = @organization_id AND v.id > @above AND v.id < @below
     ORDER BY CASE WHEN NOT @falling::boolean THEN v.id END, CASE WHEN @falling::boolean THEN v.id END DESC LIMIT @at_most)
) j
ORDER BY CASE WHEN NOT @falling::boolean THEN j.id END, CASE WHEN @falling::boolean THEN j.id END DESC
LIMIT @at_most;

-- name: CountJournal :one
SELECT ((SELECT count(*) FROM cd_rollout_transitions t WHERE t.organization_id = @organization_id)
    + (SELECT count(*) FROM cd_rollout_environment_transitions u WHERE u.organization_id = @organization_id)
    + (SELECT count(*) FROM cd_deployment_transitions v WHERE v.organization_id = @organization_id))::bigint;

-- name: JournalHorizon :one
-- The last position that can be seen, and which transactions are under way. Positions are given out before the commit, so
-- one below the last may still come; when every transaction of now has ended, none will.
SELECT GREATEST(
    (SELECT COALESCE(max(t.id), 0) FROM cd_rollout_transitions t WHERE t.organization_id = @organization_id),
    (SELECT COALESCE(max(u.id), 0) FROM cd_rollout_environment_transitions u WHERE u.organization_id = @organization_id),
    (SELECT COALESCE(max(v.id), 0) FROM cd_deployment_transitions v WHERE v.organization_id = @organization_id)
)::bigint AS position,
pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next;
