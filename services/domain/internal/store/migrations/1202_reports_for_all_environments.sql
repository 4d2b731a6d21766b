-- One call of a check may be about all environments of a rollout (R3-44): its runs in the others begin with what was found out.

-- +goose Up
ALTER TABLE cd_check_statuses ADD COLUMN environments jsonb NOT NULL DEFAULT '{}'
    CONSTRAINT cd_check_statuses_environments_is_an_object CHECK (jsonb_typeof(environments) = 'object');
COMMENT ON COLUMN cd_check_statuses.environments IS 'The phases of all environments of the rollout, by name, where the program has found them out together; empty if it has not.';

-- +goose Down
ALTER TABLE cd_check_statuses DROP COLUMN environments;
