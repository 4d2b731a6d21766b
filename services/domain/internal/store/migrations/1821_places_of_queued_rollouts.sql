-- A rollout that waits in the queue is no rollout yet: where it is to go is kept with the moment, since another one may take its place (R4-29).

-- +goose Up
ALTER TABLE cd_notifications ADD COLUMN environment_ids bigint[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN cd_notifications.environment_ids IS 'Where the rollout is to go that a moment of the queue is about; empty for any other.';

-- +goose Down
ALTER TABLE cd_notifications DROP COLUMN environment_ids;
