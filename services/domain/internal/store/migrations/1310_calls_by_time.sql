-- Simulations of policies read the decisions about calls since an instant, and not all of them (D51).

-- Outside of a transaction, so that the tables are written meanwhile. One that was interrupted is begun again.
-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS cd_call_requests_by_time;
CREATE INDEX CONCURRENTLY cd_call_requests_by_time ON cd_call_requests (organization_id, created_at, id);
-- What a run has of those that were only tried out is counted with each of them.
DROP INDEX CONCURRENTLY IF EXISTS cd_call_requests_tried;
CREATE INDEX CONCURRENTLY cd_call_requests_tried ON cd_call_requests (organization_id, workflow_id) WHERE state = 'permitted' AND quorum = 0;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS cd_call_requests_tried;
DROP INDEX CONCURRENTLY IF EXISTS cd_call_requests_by_time;
