-- Calls that were only tried out are deleted by their time (D51, D65).

-- Outside of a transaction, so that the table is written meanwhile. One that was interrupted is begun again.
-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS cd_call_requests_tried_by_time;
CREATE INDEX CONCURRENTLY cd_call_requests_tried_by_time ON cd_call_requests (organization_id, created_at) WHERE state = 'permitted' AND quorum = 0;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS cd_call_requests_tried_by_time;
