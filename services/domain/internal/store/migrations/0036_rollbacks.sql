-- Whether a rollout is a rollback is asked of many at once (R18): earlier rollouts of its set are found by the set.

-- +goose Up
CREATE INDEX cd_rollouts_by_version_set ON cd_rollouts (organization_id, version_set_id, id);

-- +goose Down
DROP INDEX cd_rollouts_by_version_set;
