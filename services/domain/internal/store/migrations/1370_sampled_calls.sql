-- Few of the calls that all policies permit at once are kept, so that simulations of policies have some (D51).

-- +goose Up
ALTER TABLE cd_call_requests ADD COLUMN sampled boolean NOT NULL DEFAULT false;
ALTER TABLE cd_call_requests ADD CONSTRAINT cd_call_requests_sampled_are_permitted
    CHECK (NOT sampled OR (state = 'permitted' AND quorum = 0)) NOT VALID;
ALTER TABLE cd_call_requests VALIDATE CONSTRAINT cd_call_requests_sampled_are_permitted;
COMMENT ON COLUMN cd_call_requests.sampled IS 'All policies permitted it at once, and it is one of the few that are kept for simulations. It is deleted as calls that were only tried out are.';

-- +goose Down
DELETE FROM cd_call_requests WHERE sampled;
ALTER TABLE cd_call_requests DROP CONSTRAINT cd_call_requests_sampled_are_permitted;
ALTER TABLE cd_call_requests DROP COLUMN sampled;
