-- What delivery metrics read: an application's rollouts by when they were over, and for how long one that was queued had been asked for. No
-- expression is indexed: a comparison with one that row-level security does not know to keep secrets would not use the index.

-- +goose Up
CREATE INDEX cd_rollouts_of_application_by_finish ON cd_rollouts (organization_id, application_id, finished_at, id);
CREATE INDEX cd_queued_rollouts_by_made_rollout ON cd_queued_rollouts (organization_id, made_rollout_id) WHERE made_rollout_id IS NOT NULL;

-- +goose Down
DROP INDEX cd_queued_rollouts_by_made_rollout;
DROP INDEX cd_rollouts_of_application_by_finish;
