-- The sampled calls of a day are counted with each of them, and lists of calls do not read them (D51).

-- Outside of a transaction, so that the table is written meanwhile. One that was interrupted is begun again.
-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS cd_call_requests_sampled;
CREATE INDEX CONCURRENTLY cd_call_requests_sampled ON cd_call_requests (organization_id, created_at) WHERE sampled;
DROP INDEX CONCURRENTLY IF EXISTS cd_call_requests_listed;
CREATE INDEX CONCURRENTLY cd_call_requests_listed ON cd_call_requests (organization_id, id) WHERE NOT sampled;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS cd_call_requests_listed;
DROP INDEX CONCURRENTLY IF EXISTS cd_call_requests_sampled;
