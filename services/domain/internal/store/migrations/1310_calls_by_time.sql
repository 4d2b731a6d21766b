-- Simulations of policies read the decisions about calls since an instant, and not all of them (D51).

-- +goose Up
CREATE INDEX cd_call_requests_by_time ON cd_call_requests (organization_id, created_at, id);

-- +goose Down
DROP INDEX cd_call_requests_by_time;
