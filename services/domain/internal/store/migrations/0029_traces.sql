-- Where what becomes of something is recorded, in W3C form: one trace from the artifact that was published to the rollout
-- that has it healthy. NULL where nobody records.

-- +goose Up
ALTER TABLE cd_version_sets ADD COLUMN traceparent text CONSTRAINT cd_version_sets_traceparent_is_given CHECK (traceparent <> '');
ALTER TABLE cd_rollouts ADD COLUMN traceparent text CONSTRAINT cd_rollouts_traceparent_is_given CHECK (traceparent <> '');
ALTER TABLE cd_handoffs ADD COLUMN traceparent text CONSTRAINT cd_handoffs_traceparent_is_given CHECK (traceparent <> '');

-- +goose Down
ALTER TABLE cd_handoffs DROP COLUMN traceparent;
ALTER TABLE cd_rollouts DROP COLUMN traceparent;
ALTER TABLE cd_version_sets DROP COLUMN traceparent;
