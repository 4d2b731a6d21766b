-- name: KnownCommits :many
-- Those of some commits that a deployment has, or that an earlier reconciliation has kept.
SELECT DISTINCT given.sha::text AS sha FROM unnest(@shas::text[]) AS given(sha)
WHERE EXISTS (SELECT FROM cd_deployment_snapshots s WHERE s.organization_id = @organization_id AND s.commit_sha = given.sha)
   OR EXISTS (SELECT FROM cd_deployment_attempts b WHERE b.organization_id = @organization_id AND b.commit_sha = given.sha)
   OR EXISTS (SELECT FROM cd_changes c WHERE c.organization_id = @organization_id AND c.action = 'reconcileRecord' AND c.subject_kind = 'commit' AND c.subject_name = given.sha);

-- name: CommitsInForce :many
-- Where a reconciler reported one of some commits last.
SELECT r.revision, a.name AS application, e.name AS environment
FROM cd_application_environment_reconciliations r
JOIN cd_application_environments ae ON ae.organization_id = r.organization_id AND ae.id = r.application_environment_id
JOIN cd_applications a ON a.organization_id = ae.organization_id AND a.id = ae.application_id
JOIN cd_environments e ON e.organization_id = ae.organization_id AND e.id = ae.environment_id
WHERE r.organization_id = @organization_id AND r.revision = ANY (@shas::text[])
ORDER BY a.name, e.name LIMIT 1000;

-- name: HandOverAgain :one
WITH again AS (
    UPDATE cd_handoffs SET state = 'pending', due_at = @at
    WHERE organization_id = @organization_id AND workflow_id = @workflow_id AND kind = 'start' AND state = 'done' RETURNING id
)
SELECT EXISTS (SELECT FROM again) AS again, EXISTS (
    SELECT FROM cd_handoffs h WHERE h.organization_id = @organization_id AND h.workflow_id = @workflow_id AND h.kind = 'start' AND h.state = 'pending'
) AS pending;
