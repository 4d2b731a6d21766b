-- Organizations have a limit of calls of channels per second; 0 is the default of the service.

-- +goose Up
ALTER TABLE usage_limit ADD COLUMN calls_per_second bigint NOT NULL DEFAULT 0 CHECK (calls_per_second >= 0);

-- +goose Down
ALTER TABLE usage_limit DROP COLUMN calls_per_second;
