-- What lists of rollouts are read by that go by when each was over; those that are not over come after all others.

-- +goose Up
CREATE INDEX cd_rollouts_by_finish ON cd_rollouts (organization_id, (COALESCE(finished_at, '9999-12-31 00:00:00+00'::timestamptz)), id);

-- +goose Down
DROP INDEX cd_rollouts_by_finish;
