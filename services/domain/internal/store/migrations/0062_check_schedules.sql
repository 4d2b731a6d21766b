-- A check may follow windows of time (D48, R3-27).

-- +goose Up
ALTER TABLE cd_rollout_checks
    ADD COLUMN windows jsonb,
    DROP CONSTRAINT cd_rollout_checks_kind_is_known,
    ADD CONSTRAINT cd_rollout_checks_kind_is_known CHECK (kind IN ('status', 'timer', 'schedule')),
    ADD CONSTRAINT cd_rollout_checks_schedule_has_windows CHECK ((kind = 'schedule') = (windows IS NOT NULL)),
    ADD CONSTRAINT cd_rollout_checks_windows_are_bounded CHECK (length(windows::text) <= 131072);
COMMENT ON COLUMN cd_rollout_checks.windows IS 'When a schedule is open: allow and exclude, each with cron, duration, time_zone and description; and time_zone. Null for other kinds.';

-- +goose Down
ALTER TABLE cd_rollout_checks
    DROP CONSTRAINT cd_rollout_checks_windows_are_bounded,
    DROP CONSTRAINT cd_rollout_checks_schedule_has_windows,
    DROP CONSTRAINT cd_rollout_checks_kind_is_known,
    DROP COLUMN windows,
    ADD CONSTRAINT cd_rollout_checks_kind_is_known CHECK (kind IN ('status', 'timer'));
