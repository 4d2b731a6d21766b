-- In a transaction of its own, so that the journal is read while it is written.

-- +goose Up
ALTER TABLE cd_policy_decisions VALIDATE CONSTRAINT cd_policy_decisions_request_is_bounded;

-- +goose Down
SELECT 1;
