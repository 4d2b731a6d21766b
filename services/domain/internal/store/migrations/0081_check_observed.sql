-- A report says when its reporter has found it out (D48). Of two of one reporter the one that was observed later counts.

-- +goose Up
ALTER TABLE cd_check_statuses ADD COLUMN observed_at timestamptz NOT NULL DEFAULT now();
COMMENT ON COLUMN cd_check_statuses.observed_at IS 'When the reporter found it out; of rows from before this column, when the column was added.';

-- +goose Down
ALTER TABLE cd_check_statuses DROP COLUMN observed_at;
