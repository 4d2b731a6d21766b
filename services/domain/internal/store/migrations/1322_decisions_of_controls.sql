-- In a transaction of its own, so that the journal is read while it is written.

-- +goose Up
ALTER TABLE cd_policy_decisions VALIDATE CONSTRAINT cd_policy_decisions_only_of_controls;

-- +goose Down
SELECT 1;
