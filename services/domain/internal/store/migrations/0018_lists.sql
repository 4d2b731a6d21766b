-- What lists and the stream of the journal are read by, so that a page costs what is on it and not what is beside it.

-- +goose Up
CREATE INDEX cd_rollouts_active ON cd_rollouts (organization_id, id) WHERE state IN (0, 1, 2);
CREATE INDEX cd_rollout_transitions_asking ON cd_rollout_transitions (organization_id, rollout_id) WHERE event = 'request_approval';
CREATE INDEX cd_rollout_transitions_by_position ON cd_rollout_transitions (organization_id, id);
CREATE INDEX cd_rollout_environment_transitions_by_position ON cd_rollout_environment_transitions (organization_id, id);
CREATE INDEX cd_deployment_transitions_by_position ON cd_deployment_transitions (organization_id, id);

-- +goose Down
DROP INDEX cd_deployment_transitions_by_position;
DROP INDEX cd_rollout_environment_transitions_by_position;
DROP INDEX cd_rollout_transitions_by_position;
DROP INDEX cd_rollout_transitions_asking;
DROP INDEX cd_rollouts_active;
