-- The audit by action alone had no index among the rows of rollouts, so it visited the whole journal (D50). What the system does is not in it,
-- which is most rows.

-- +goose Up
CREATE INDEX cd_rollout_transitions_by_action ON cd_rollout_transitions (organization_id, event, id) WHERE principal_type <> 'system';

-- +goose Down
DROP INDEX cd_rollout_transitions_by_action;
