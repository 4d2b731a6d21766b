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

-- name: PreviewsByID :many
SELECT * FROM cd_rollout_previews WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);
