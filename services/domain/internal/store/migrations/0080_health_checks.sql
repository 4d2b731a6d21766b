-- A check may follow the health of what was deployed (D48, R3-17).

-- +goose Up
ALTER TABLE cd_rollout_checks
    DROP CONSTRAINT cd_rollout_checks_kind_is_known,
    ADD CONSTRAINT cd_rollout_checks_kind_is_known CHECK (kind IN ('status', 'timer', 'schedule', 'health'));

-- +goose Down
ALTER TABLE cd_rollout_checks
    DROP CONSTRAINT cd_rollout_checks_kind_is_known,
    ADD CONSTRAINT cd_rollout_checks_kind_is_known CHECK (kind IN ('status', 'timer', 'schedule'));
