-- +goose Up
ALTER TABLE cd_rollout_deadlines ADD COLUMN at_work boolean NOT NULL DEFAULT false;
ALTER TABLE cd_rollout_deadlines ADD CONSTRAINT cd_rollout_deadlines_work_is_in_an_environment
    CHECK (NOT at_work OR kind = 'environment' AND NOT counts_waiting);
COMMENT ON COLUMN cd_rollout_deadlines.at_work IS
    'Whether only time counts in which the rollout is at work in the environment, as in the default of pipelines without deadlines.';

-- +goose Down
ALTER TABLE cd_rollout_deadlines DROP COLUMN at_work;
