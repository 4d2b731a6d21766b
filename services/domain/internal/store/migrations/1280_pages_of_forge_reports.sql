-- A page of what forges have reported reads what it shows, however much was reported to hooks that were removed (D64).

-- +goose Up
CREATE INDEX cd_forge_reports_of_hook ON cd_forge_reports (organization_id, hook_id, id);

-- +goose Down
DROP INDEX cd_forge_reports_of_hook;
