-- name: InsertRollout :one
INSERT INTO cd_rollouts (organization_id, application_id, version_set_id, flow_definition_id, traceparent, rollback_of, passages, strategy, strategy_reason, inputs)
VALUES (@organization_id, @application_id, @version_set_id, @flow_definition_id, @traceparent, @rollback_of, true, @strategy, @strategy_reason, @inputs) RETURNING *;

-- name: InsertRolloutSkip :exec
INSERT INTO cd_rollout_skips (organization_id, rollout_id, environment_id, cause) VALUES (@organization_id, @rollout_id, @environment_id, @cause);

-- name: RolloutSkips :many
SELECT * FROM cd_rollout_skips WHERE organization_id = @organization_id AND rollout_id = ANY(@ids::bigint[]) ORDER BY rollout_id, id;

-- name: TraceOfVersionSet :one
SELECT COALESCE(traceparent, '')::text FROM cd_version_sets WHERE organization_id = @organization_id AND id = @id;

-- name: TraceOfRollout :one
SELECT COALESCE(traceparent, '')::text FROM cd_rollouts WHERE organization_id = @organization_id AND id = @id;

-- name: InsertRolloutEnvironment :one
INSERT INTO cd_rollout_environments (organization_id, rollout_id, environment_id, position, driver_binding_id, driver_digest, previous_version_set_id, weights, skips_weights, follows, needs_health)
VALUES (@organization_id, @rollout_id, @environment_id, @position, @driver_binding_id, @driver_digest, @previous_version_set_id, @weights, @skips_weights, @follows, @needs_health) RETURNING *;

-- name: InsertDeployment :one
INSERT INTO cd_deployments (organization_id, rollout_environment_id, service_id)
VALUES (@organization_id, @rollout_environment_id, @service_id) RETURNING *;

-- name: InsertSnapshot :exec
INSERT INTO cd_deployment_snapshots (organization_id, deployment_id, commit_sha, manifest_digest, parameters, changes, reported_at)
VALUES (@organization_id, @deployment_id, @commit_sha, @manifest_digest, @parameters, @changes, @reported_at)
ON CONFLICT (organization_id, deployment_id) DO NOTHING;

-- name: ReplaceSnapshot :exec
SELECT cd_replace_snapshot(@deployment_id::bigint, @commit_sha::text, @manifest_digest::text, @parameters::jsonb, @changes::jsonb, @reported_at::timestamptz);

-- name: InsertAttempt :exec
INSERT INTO cd_deployment_attempts (organization_id, deployment_id, commit_sha, manifest_digest, reported_at)
SELECT @organization_id, @deployment_id, @commit_sha, @manifest_digest, @reported_at WHERE NOT EXISTS (
    SELECT FROM cd_deployment_attempts a WHERE a.organization_id = @organization_id AND a.deployment_id = @deployment_id
      AND a.commit_sha = @commit_sha AND a.manifest_digest = @manifest_digest);

-- name: CountAttempts :one
-- Those beside the snapshot: what has come back is the snapshot.
SELECT count(*) FROM cd_deployment_attempts a
WHERE a.organization_id = @organization_id AND a.deployment_id = @deployment_id AND NOT EXISTS (
    SELECT FROM cd_deployment_snapshots s WHERE s.organization_id = a.organization_id AND s.deployment_id = a.deployment_id
      AND s.commit_sha = a.commit_sha AND s.manifest_digest = a.manifest_digest);

-- name: UpsertDeploymentLink :exec
INSERT INTO cd_deployment_links AS l (organization_id, deployment_id, name, namespace, url, status)
VALUES (@organization_id, @deployment_id, @name, @namespace, @url, @status)
ON CONFLICT (organization_id, deployment_id) DO UPDATE
SET name = excluded.name, namespace = excluded.namespace, url = excluded.url, status = excluded.status,
    reported = CASE WHEN (l.name, l.namespace) = (excluded.name, excluded.namespace) THEN l.reported ELSE '{}' END;

-- name: NoteDeploymentReport :execrows
-- Nothing for a phase that is known already, and for another name than the deployment has outside now.
UPDATE cd_deployment_links SET reported = reported || ARRAY[@phase::text]
WHERE organization_id = @organization_id AND deployment_id = @deployment_id AND name = @name AND namespace = @namespace AND NOT @phase::text = ANY(reported);

-- name: LinksByDeployment :many
SELECT deployment_id, name, namespace, url, status FROM cd_deployment_links
WHERE organization_id = @organization_id AND deployment_id = ANY(@ids::bigint[]);

-- name: LiveVersionSets :many
SELECT environment_id, live_version_set_id::bigint AS version_set_id FROM cd_cells
WHERE organization_id = @organization_id AND application_id = @application_id AND live_version_set_id IS NOT NULL;

-- name: TouchedEnvironments :many
-- Where a rollout that came after the last completed one may have changed something: its deployments have begun, or it was allowed in
-- and their beginning may not have been heard of. Each rollout since then is looked up by itself: joined in another way, or by EXISTS
-- after OR, the history of the environment or all deployments may be read. With COALESCE in place of CASE, which behind row-level security
-- is no condition of an index, it would be the history of the application.
SELECT c.environment_id
FROM cd_cells c
JOIN cd_environments n ON n.organization_id = c.organization_id AND n.id = c.environment_id
LEFT JOIN cd_rollout_environments live ON live.organization_id = c.organization_id AND live.id = c.live_rollout_environment_id
CROSS JOIN LATERAL (
    SELECT FROM cd_rollouts r
    CROSS JOIN LATERAL (
        SELECT e.id FROM cd_rollout_environments e
        WHERE e.organization_id = r.organization_id AND e.rollout_id = r.id AND e.environment_id = c.environment_id AND e.state <> 'completed' LIMIT 1
    ) e
    WHERE r.organization_id = c.organization_id AND r.application_id = c.application_id AND r.id > CASE WHEN live.rollout_id IS NULL THEN 0 ELSE live.rollout_id END
      AND COALESCE((SELECT true FROM cd_deployments d
                    WHERE d.organization_id = r.organization_id AND d.rollout_environment_id = e.id AND (d.started_at IS NOT NULL OR d.state NOT IN ('pending', 'cancelled'))
                    LIMIT 1),
                   (SELECT true FROM cd_rollout_transitions t
                    WHERE t.organization_id = r.organization_id AND t.rollout_id = r.id AND t.event = 'pass_gate' AND t.gate_id = n.name LIMIT 1), false)
    ORDER BY r.id DESC LIMIT 1
) touched
WHERE c.organization_id = @organization_id AND c.application_id = @application_id;

-- name: EnteredEnvironments :many
-- Those that a rollout was let into and has not completed.
SELECT e.environment_id
FROM cd_rollout_environments e
JOIN cd_environments n ON n.organization_id = e.organization_id AND n.id = e.environment_id
WHERE e.organization_id = @organization_id AND e.rollout_id = @rollout_id AND e.state <> 'completed'
  AND EXISTS (SELECT FROM cd_rollout_transitions t
              WHERE t.organization_id = e.organization_id AND t.rollout_id = e.rollout_id AND t.event = 'pass_gate' AND t.gate_id = n.name)
ORDER BY e.position;

-- name: ReportableDeployment :one
-- What has to be known of a deployment before a report about it is taken.
SELECT r.application_id, n.id AS environment_id, n.name AS environment, n.tier, d.state, r.state AS rollout_state,
    coalesce(l.name, '')::text AS name, coalesce(l.namespace, '')::text AS namespace, coalesce(l.reported, '{}')::text[] AS reported
FROM cd_deployments d
JOIN cd_rollout_environments e ON e.organization_id = d.organization_id AND e.id = d.rollout_environment_id
JOIN cd_rollouts r ON r.organization_id = e.organization_id AND r.id = e.rollout_id
JOIN cd_environments n ON n.organization_id = e.organization_id AND n.id = e.environment_id
LEFT JOIN cd_deployment_links l ON l.organization_id = d.organization_id AND l.deployment_id = d.id
WHERE d.organization_id = @organization_id AND d.id = @id;

-- name: RecordedInputs :one
-- Those of the last rollout that has brought a version set to an environment.
SELECT r.inputs FROM cd_rollouts r
JOIN cd_rollout_environments e ON e.organization_id = r.organization_id AND e.rollout_id = r.id AND e.environment_id = @environment_id
WHERE r.organization_id = @organization_id AND r.version_set_id = @version_set_id AND e.state = 'completed'
ORDER BY r.id DESC
LIMIT 1;

-- name: EnvironmentsThatRan :many
-- Where a version set has been completed, whatever came later.
SELECT c.environment_id
FROM cd_version_sets s
JOIN cd_cells c ON c.organization_id = s.organization_id AND c.application_id = s.application_id
CROSS JOIN LATERAL (
    SELECT FROM cd_rollouts r
    CROSS JOIN LATERAL (
        SELECT FROM cd_rollout_environments e
        WHERE e.organization_id = r.organization_id AND e.rollout_id = r.id AND e.environment_id = c.environment_id AND e.state = 'completed' LIMIT 1
    ) e
    WHERE r.organization_id = s.organization_id AND r.version_set_id = s.id
    ORDER BY r.id DESC LIMIT 1
) ran
WHERE s.organization_id = @organization_id AND s.id = @version_set_id;

-- name: LockRollout :one
SELECT * FROM cd_rollouts WHERE organization_id = @organization_id AND id = @id FOR NO KEY UPDATE;

-- name: LockRollouts :many
-- In the order of their numbers, so that two who lock some of the same do not wait for each other.
SELECT * FROM cd_rollouts WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]) ORDER BY id FOR NO KEY UPDATE;

-- name: RolloutsOfDeployments :many
SELECT d.id, e.rollout_id FROM cd_deployments d
JOIN cd_rollout_environments e ON e.organization_id = d.organization_id AND e.id = d.rollout_environment_id
WHERE d.organization_id = @organization_id AND d.id = ANY(@ids::bigint[]);

-- name: RolloutOfDeployment :one
SELECT e.rollout_id FROM cd_deployments d
JOIN cd_rollout_environments e ON e.organization_id = d.organization_id AND e.id = d.rollout_environment_id
WHERE d.organization_id = @organization_id AND d.id = @id;

-- name: SetRolloutWorkflowRef :exec
UPDATE cd_rollouts SET workflow_ref = @workflow_ref WHERE organization_id = @organization_id AND id = @id;

-- name: SetRolloutState :execrows
UPDATE cd_rollouts SET state = @to_state,
    started_at = CASE WHEN @to_state::text = 'in_progress' THEN COALESCE(started_at, @at::timestamptz) ELSE started_at END,
    finished_at = CASE WHEN @to_state::text IN ('completed', 'failed', 'cancelled') THEN @at::timestamptz ELSE finished_at END
WHERE organization_id = @organization_id AND id = @id AND state = @from_state;

-- name: SetRolloutEnvironmentState :execrows
UPDATE cd_rollout_environments SET state = @to_state,
    started_at = CASE WHEN @to_state::text = 'in_progress' THEN COALESCE(started_at, @at::timestamptz) ELSE started_at END,
    finished_at = CASE WHEN @to_state::text IN ('completed', 'failed', 'cancelled') THEN @at::timestamptz ELSE finished_at END
WHERE organization_id = @organization_id AND id = @id AND state = @from_state;

-- name: SetDeploymentState :execrows
UPDATE cd_deployments SET state = @to_state,
    started_at = CASE WHEN @to_state::text = 'deploying' THEN COALESCE(started_at, @at::timestamptz) ELSE started_at END,
    finished_at = CASE WHEN @to_state::text NOT IN ('pending', 'deploying') THEN @at::timestamptz ELSE finished_at END
WHERE organization_id = @organization_id AND id = @id AND state = @from_state;

-- name: RolloutsByID :many
SELECT * FROM cd_rollouts WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: RolloutsByApplication :many
SELECT * FROM cd_rollouts v
WHERE v.organization_id = @organization_id AND v.id = ANY(ARRAY(
  SELECT page.id FROM unnest(@ids::bigint[]) AS parent(id)
  CROSS JOIN LATERAL (SELECT n.id FROM cd_rollouts n
    WHERE n.organization_id = @organization_id AND n.application_id = parent.id AND n.id > @above AND n.id < @below
    ORDER BY CASE WHEN NOT @falling::boolean THEN n.id END, CASE WHEN @falling::boolean THEN n.id END DESC LIMIT @at_most) page
))
ORDER BY v.application_id, CASE WHEN NOT @falling::boolean THEN v.id END, CASE WHEN @falling::boolean THEN v.id END DESC;

-- name: CountRolloutsByApplication :many
SELECT application_id AS id, count(*) AS items FROM cd_rollouts
WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]) GROUP BY application_id;

-- name: ActiveRollouts :many
SELECT * FROM cd_rollouts WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]) AND state IN ('pending', 'in_progress', 'paused');

-- name: ActiveRolloutsByEnvironment :many
-- The newest rollout of each environment that goes there and is not over.
SELECT DISTINCT ON (e.environment_id) e.environment_id, r.id, r.state
FROM cd_rollouts r
JOIN cd_rollout_environments e ON e.organization_id = r.organization_id AND e.rollout_id = r.id
WHERE r.organization_id = @organization_id AND r.state IN ('pending', 'in_progress', 'paused') AND e.environment_id = ANY(@ids::bigint[])
ORDER BY e.environment_id, r.id DESC;

-- name: Marks :many
-- What is shown of rollouts beside their state: whether one that is not over was aborted, and not retried since; whether the
-- latest request about a hold is a pause that has not taken effect yet (D17); whether the glass was broken; and the newest rollout
-- that takes it back. One query for all, since every list of rollouts asks it.
SELECT r.id,
       (r.state IN ('pending', 'in_progress') AND COALESCE((
           SELECT p.event = 'pause' AND p.from_state = p.to_state FROM cd_rollout_transitions p
           WHERE p.organization_id = r.organization_id AND p.rollout_id = r.id AND p.event IN ('pause', 'resume') ORDER BY p.id DESC LIMIT 1), false))::boolean AS pausing,
       COALESCE((SELECT b.id FROM cd_rollouts b
           WHERE b.organization_id = r.organization_id AND b.rollback_of = r.id ORDER BY b.id DESC LIMIT 1), 0)::bigint AS rolled_back_by,
       (r.state IN ('pending', 'in_progress', 'paused') AND COALESCE((
           SELECT a.event = 'abort' FROM cd_rollout_transitions a
           WHERE a.organization_id = r.organization_id AND a.rollout_id = r.id AND a.event IN ('abort', 'retry') ORDER BY a.id DESC LIMIT 1), false))::boolean AS aborted,
       COALESCE(g.principal_id, 0)::bigint AS breaker_id, COALESCE(g.reason, '')::text AS breaker_reason, COALESCE(g.created_at, 'epoch')::timestamptz AS broken_at
FROM cd_rollouts r
LEFT JOIN LATERAL (
    SELECT b.principal_id, b.reason, b.created_at FROM cd_rollout_transitions b
    WHERE b.organization_id = r.organization_id AND b.rollout_id = r.id AND b.event = 'break_glass' AND b.gate_id IS NULL
    ORDER BY b.id LIMIT 1
) g ON true
WHERE r.organization_id = @organization_id AND r.id = ANY(@ids::bigint[]);

-- name: Rollbacks :many
-- Those that take a rollout back, and those whose target was live before in their first environment, with something else in between (R18): something else since
-- the first time that it was.
SELECT r.id FROM cd_rollouts r WHERE r.organization_id = @organization_id AND r.id = ANY(@ids::bigint[]) AND r.rollback_of IS NOT NULL
UNION
SELECT r.id
FROM cd_rollouts r
JOIN cd_rollout_environments f ON f.organization_id = r.organization_id AND f.rollout_id = r.id AND f.position = 1
CROSS JOIN LATERAL (
    SELECT b.id FROM cd_rollouts b
    JOIN cd_rollout_environments live ON live.organization_id = b.organization_id AND live.rollout_id = b.id AND live.environment_id = f.environment_id AND live.state = 'completed'
    WHERE b.organization_id = r.organization_id AND b.version_set_id = r.version_set_id AND b.id < r.id
    ORDER BY b.id LIMIT 1
) before
CROSS JOIN LATERAL (
    SELECT FROM cd_rollouts o
    JOIN cd_rollout_environments tried ON tried.organization_id = o.organization_id AND tried.rollout_id = o.id AND tried.environment_id = f.environment_id
    WHERE o.organization_id = r.organization_id AND o.application_id = r.application_id AND o.version_set_id <> r.version_set_id
      AND o.id < r.id AND o.id > before.id AND tried.started_at IS NOT NULL
    ORDER BY o.id DESC LIMIT 1
) between_
WHERE r.organization_id = @organization_id AND r.id = ANY(@ids::bigint[]);

-- name: RolloutEnvironmentsByID :many
SELECT * FROM cd_rollout_environments WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: RolloutEnvironmentsByRollout :many
SELECT * FROM cd_rollout_environments WHERE organization_id = @organization_id AND rollout_id = ANY(@ids::bigint[]) ORDER BY rollout_id, position;

-- name: DeploymentsByID :many
SELECT * FROM cd_deployments WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: DeploymentsByRolloutEnvironment :many
SELECT * FROM cd_deployments WHERE organization_id = @organization_id AND rollout_environment_id = ANY(@ids::bigint[]) ORDER BY rollout_environment_id, id;

-- name: DeploymentsByRollout :many
SELECT d.* FROM cd_deployments d
JOIN cd_rollout_environments e ON e.organization_id = d.organization_id AND e.id = d.rollout_environment_id
WHERE e.organization_id = @organization_id AND e.rollout_id = ANY(@ids::bigint[]) ORDER BY d.rollout_environment_id, d.id;

-- name: EnvironmentsByRollout :many
SELECT n.* FROM cd_environments n
WHERE n.organization_id = @organization_id AND n.id IN (
    SELECT e.environment_id FROM cd_rollout_environments e WHERE e.organization_id = @organization_id AND e.rollout_id = ANY(@ids::bigint[])
);

-- name: LiveSnapshots :many
-- With what each service was deployed that is live.
SELECT d.service_id, d.id AS deployment_id, e.rollout_id, s.manifest_digest, s.parameters
FROM cd_cells c
JOIN cd_rollout_environments e ON e.organization_id = c.organization_id AND e.id = c.live_rollout_environment_id
JOIN cd_deployments d ON d.organization_id = e.organization_id AND d.rollout_environment_id = e.id
JOIN cd_deployment_snapshots s ON s.organization_id = d.organization_id AND s.deployment_id = d.id
WHERE c.organization_id = @organization_id AND c.application_id = @application_id AND c.environment_id = @environment_id
ORDER BY d.service_id;

-- name: SnapshotsByDeployment :many
-- The bundle is the one that the rollout has pinned for the environment (D7, D15).
SELECT sqlc.embed(s), e.driver_digest
FROM cd_deployment_snapshots s
JOIN cd_deployments d ON d.organization_id = s.organization_id AND d.id = s.deployment_id
JOIN cd_rollout_environments e ON e.organization_id = d.organization_id AND e.id = d.rollout_environment_id
WHERE s.organization_id = @organization_id AND s.deployment_id = ANY(@ids::bigint[]);

-- name: AttemptsByDeployment :many
-- Those beside the snapshots, in the order in which they were kept. What has come back is the snapshot.
SELECT a.deployment_id, a.commit_sha, a.manifest_digest, a.reported_at FROM cd_deployment_attempts a
WHERE a.organization_id = @organization_id AND a.deployment_id = ANY(@ids::bigint[]) AND NOT EXISTS (
    SELECT FROM cd_deployment_snapshots s WHERE s.organization_id = a.organization_id AND s.deployment_id = a.deployment_id
      AND s.commit_sha = a.commit_sha AND s.manifest_digest = a.manifest_digest)
ORDER BY a.deployment_id, a.id;
