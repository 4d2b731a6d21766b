-- What is deployed of a registry of charts is in no commit (D53).

-- +goose Up
ALTER TABLE cd_deployment_snapshots DROP CONSTRAINT cd_deployment_snapshots_commit_is_given;
COMMENT ON COLUMN cd_deployment_snapshots.commit_sha IS 'The commit of the desired state; empty for a chart of a registry, whose digest is in the parameters.';

-- +goose Down
COMMENT ON COLUMN cd_deployment_snapshots.commit_sha IS NULL;
-- Rows of charts stay as they are: they are what was deployed.
ALTER TABLE cd_deployment_snapshots ADD CONSTRAINT cd_deployment_snapshots_commit_is_given CHECK (commit_sha <> '') NOT VALID;
