-- Checks of kind health that also wait until nothing differs from what was deployed (R3-17, R4-11).

-- +goose Up
ALTER TABLE cd_rollout_checks ADD COLUMN in_sync boolean NOT NULL DEFAULT false;
ALTER TABLE cd_rollout_checks ADD CONSTRAINT cd_rollout_checks_only_health_is_in_sync CHECK (NOT in_sync OR kind = 'health');
COMMENT ON COLUMN cd_rollout_checks.in_sync IS 'Whether a check of kind health also waits until nothing differs from what was deployed.';

-- +goose Down
ALTER TABLE cd_rollout_checks DROP CONSTRAINT cd_rollout_checks_only_health_is_in_sync, DROP COLUMN in_sync;
