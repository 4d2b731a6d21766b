-- A page of what forges have reported reads what it shows, however much was reported to hooks that were removed (D64).

-- Outside of a transaction, so that the tables are written meanwhile. One that was interrupted is begun again.
-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS cd_forge_reports_of_hook;
CREATE INDEX CONCURRENTLY cd_forge_reports_of_hook ON cd_forge_reports (organization_id, hook_id, id);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS cd_forge_reports_of_hook;
