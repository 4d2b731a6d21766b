-- What a run of a check has found out can be read by the runs of the same check in other environments (R3-38, R3-44).

-- +goose Up
ALTER TABLE cd_check_runs ADD COLUMN output json NOT NULL DEFAULT '{}'
    CONSTRAINT cd_check_runs_output_is_an_object CHECK (json_typeof(output) = 'object')
    CONSTRAINT cd_check_runs_output_is_bounded CHECK (octet_length(output::text) <= 16384);
COMMENT ON COLUMN cd_check_runs.output IS 'What its program has reported last for the runs of the same check in other environments. It is handed over as text, so it is not jsonb.';

-- +goose Down
ALTER TABLE cd_check_runs DROP COLUMN output;
