-- Policies see labels, agents and drivers of environments (D51), so that what they are asked is longer.

-- +goose Up
ALTER TABLE cd_policy_decisions DROP CONSTRAINT cd_policy_decisions_request_is_bounded;
ALTER TABLE cd_policy_decisions ADD CONSTRAINT cd_policy_decisions_request_is_bounded CHECK (length((request)::text) <= 524288) NOT VALID;

-- +goose Down
ALTER TABLE cd_policy_decisions DROP CONSTRAINT cd_policy_decisions_request_is_bounded;
ALTER TABLE cd_policy_decisions ADD CONSTRAINT cd_policy_decisions_request_is_bounded CHECK (length((request)::text) <= 131072) NOT VALID;
