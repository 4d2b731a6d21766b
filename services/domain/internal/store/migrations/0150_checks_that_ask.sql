-- The program of a check may ask a person to decide (D48): what it has found is inconclusive, or there is nothing to go by.

-- +goose Up
ALTER TABLE cd_check_statuses ADD COLUMN asks boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cd_check_statuses.asks IS 'The program of the check cannot decide and asks a person. A status of a person after it decides.';

-- +goose Down
ALTER TABLE cd_check_statuses DROP COLUMN asks;
