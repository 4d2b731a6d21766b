-- Which of some commits belong to deployments (D66).
-- +goose Up
CREATE INDEX cd_deployment_snapshots_by_commit ON cd_deployment_snapshots (organization_id, commit_sha);

-- +goose Down
DROP INDEX cd_deployment_snapshots_by_commit;
