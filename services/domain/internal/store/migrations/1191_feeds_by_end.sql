-- The calendar of freezes reads those that end late enough, and not those of years ago (D64).

-- +goose Up
CREATE INDEX cd_freezes_by_end ON cd_freezes (organization_id, ends_at);

-- +goose Down
DROP INDEX cd_freezes_by_end;
