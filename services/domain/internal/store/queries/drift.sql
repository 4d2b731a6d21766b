-- name: OrganizationsWithDueDriftLooks :many
-- Across organizations, on purpose: the worker is for all.
SELECT organization_id::bigint FROM cd_organizations_with_due_drift_looks(@at) AS organization_id;

-- name: DueDriftLook :one
-- Without a lock, which comes after those of the rollout and the application; it is read again with it.
SELECT * FROM cd_drift_looks WHERE organization_id = @organization_id AND due_at <= @at ORDER BY due_at, id LIMIT 1;

-- name: DriftLook :one
SELECT * FROM cd_drift_looks WHERE organization_id = @organization_id AND application_environment_id = @application_environment_id FOR UPDATE;

-- name: SaveDriftLook :exec
UPDATE cd_drift_looks SET due_at = @due_at, asked_at = @asked_at, preview_id = @preview_id, failed_at = @failed_at, failure = left(@failure::text, 1000)
WHERE organization_id = @organization_id AND application_environment_id = @application_environment_id;

-- name: DeployedLast :one
SELECT coalesce(s.commit_sha, '')::text AS commit_sha, coalesce(s.parameters ->> 'chart_digest', '')::text AS chart_digest,
    r.flow_definition_id, e.driver_binding_id,
    ARRAY(SELECT DISTINCT o.service_id FROM cd_deployments o
          WHERE o.organization_id = e.organization_id AND o.rollout_environment_id = e.id ORDER BY o.service_id)::bigint[] AS services
FROM cd_cells c
JOIN cd_rollout_environments e ON e.organization_id = c.organization_id AND e.id = c.live_rollout_environment_id
JOIN cd_rollouts r ON r.organization_id = e.organization_id AND r.id = e.rollout_id
LEFT JOIN cd_deployments d ON d.organization_id = e.organization_id AND d.rollout_environment_id = e.id
LEFT JOIN cd_deployment_snapshots s ON s.organization_id = d.organization_id AND s.deployment_id = d.id
WHERE c.organization_id = @organization_id AND c.application_id = @application_id AND c.environment_id = @environment_id
ORDER BY s.id DESC NULLS LAST LIMIT 1;

-- name: ForgetDriftPreviews :exec
SELECT cd_forget_drift_previews(@before::timestamptz, @at_most::integer);
