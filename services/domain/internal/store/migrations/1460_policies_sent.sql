-- A rollout that is created after a set was switched off is not denied by the version before (D51).

-- +goose Up
ALTER TABLE cd_policy_sets ADD COLUMN sent integer CONSTRAINT cd_policy_sets_sent_is_a_version CHECK (sent BETWEEN 1 AND version);
COMMENT ON COLUMN cd_policy_sets.sent IS 'The latest version that the engine was sent, also one that is off or not about calls any more; null where none was, and until the set is announced again after an upgrade.';

-- +goose Down
ALTER TABLE cd_policy_sets DROP COLUMN sent;
