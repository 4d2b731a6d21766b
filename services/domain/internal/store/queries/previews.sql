-- name: InsertPreview :one
INSERT INTO cd_rollout_previews (organization_id, application_id, version_set_id, drift_of)
VALUES (@organization_id, @application_id, @version_set_id, sqlc.narg('drift_of')) RETURNING *;

-- name: ForgetPreviews :exec
-- Those of the organization that were asked for before an instant, the oldest first.
SELECT cd_forget_previews(@before::timestamptz, @at_most::integer);

-- name: SettlePreview :exec
-- What the program has reported stays: the engine's event about its end may arrive before it, or after.
UPDATE cd_rollout_previews SET state = @state, reason = @reason, environments = @environments
WHERE organization_id = @organization_id AND id = @id AND state <> 'made';

-- name: SetPreviewWorkflowRef :exec
UPDATE cd_rollout_previews SET workflow_ref = @workflow_ref WHERE organization_id = @organization_id AND id = @id;

-- name: LatestPreview :many
-- The latest of the version set of a rollout, whatever it lists; outdated if the application has changed since it was asked for: something
-- was committed for it, or another rollout was not at its end. Rollouts of an application take turns, so only the latest can have done that.
-- Every time here is the database's: a row of the journal is never updated.
SELECT sqlc.embed(p), EXISTS (
    SELECT FROM cd_rollouts l WHERE l.organization_id = @organization_id AND l.id IN (
        SELECT r.id FROM cd_rollouts r WHERE r.organization_id = @organization_id AND r.application_id = @application_id ORDER BY r.id DESC LIMIT 20)
    AND (l.id <> @rollout_id AND EXISTS (SELECT FROM cd_rollout_transitions t
            WHERE t.organization_id = @organization_id AND t.rollout_id = l.id AND t.updated_at >= p.created_at)
       OR EXISTS (SELECT FROM cd_rollout_environments e
            JOIN cd_deployments d ON d.organization_id = e.organization_id AND d.rollout_environment_id = e.id
            JOIN cd_deployment_snapshots s ON s.organization_id = d.organization_id AND s.deployment_id = d.id AND s.created_at >= p.created_at
            WHERE e.organization_id = @organization_id AND e.rollout_id = l.id))
)::boolean AS outdated
FROM cd_rollout_previews p
WHERE p.organization_id = @organization_id AND p.application_id = @application_id AND p.version_set_id = @version_set_id AND p.drift_of IS NULL
ORDER BY p.id DESC LIMIT 1;

-- name: PreviewsByID :many
SELECT * FROM cd_rollout_previews WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);
