-- name: InsertPreview :one
INSERT INTO cd_rollout_previews (organization_id, application_id, version_set_id)
VALUES (@organization_id, @application_id, @version_set_id) RETURNING *;

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
-- The latest of the version set of a rollout that lists changes of files, asked for after every other rollout of the application was created.
SELECT * FROM cd_rollout_previews p
WHERE p.organization_id = @organization_id AND p.application_id = @application_id AND p.version_set_id = @version_set_id AND p.state = 'made'
  AND jsonb_path_exists(p.environments, '$[*].changes[*]')
  AND NOT EXISTS (SELECT FROM cd_rollouts r WHERE r.organization_id = @organization_id AND r.application_id = @application_id
    AND r.id <> @rollout_id AND r.created_at >= p.created_at)
ORDER BY p.id DESC LIMIT 1;

-- name: PreviewsByID :many
SELECT * FROM cd_rollout_previews WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);
