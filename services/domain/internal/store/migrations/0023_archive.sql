-- Applications and environments are archived, never deleted: their history stays readable, their names stay taken (R51). And
-- which application environments the latest pipeline goes to.

-- +goose Up
ALTER TABLE cd_applications ADD COLUMN archived_at timestamptz;
COMMENT ON COLUMN cd_applications.archived_at IS 'Since when nothing is rolled out any more, and no version is taken; null while it lives.';
ALTER TABLE cd_environments ADD COLUMN archived_at timestamptz;
COMMENT ON COLUMN cd_environments.archived_at IS 'Since when nothing is rolled out there any more; null while it lives. What runs there is left alone.';
ALTER TABLE cd_application_environments ADD COLUMN current boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN cd_application_environments.current IS 'The latest pipeline goes there. One that an earlier pipeline went to keeps its row, for the history.';

-- +goose Down
ALTER TABLE cd_application_environments DROP COLUMN current;
ALTER TABLE cd_environments DROP COLUMN archived_at;
ALTER TABLE cd_applications DROP COLUMN archived_at;
