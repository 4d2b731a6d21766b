-- Each attempt of a deployment has a snapshot (D53): a retry may commit something else. The latest is what is deployed.

-- +goose Up
ALTER TABLE cd_deployment_snapshots DROP CONSTRAINT cd_deployment_snapshots_one_per_deployment;
CREATE UNIQUE INDEX cd_deployment_snapshots_by_deployment ON cd_deployment_snapshots (organization_id, deployment_id, id);
COMMENT ON TABLE cd_deployment_snapshots IS 'What exactly was deployed, by each attempt: the latest is what is deployed. Never a secret.';

-- +goose Down
COMMENT ON TABLE cd_deployment_snapshots IS 'What exactly was deployed. Never a secret.';
DROP INDEX cd_deployment_snapshots_by_deployment;
-- It fails where a deployment has had several attempts: all of them are what was deployed.
ALTER TABLE cd_deployment_snapshots ADD CONSTRAINT cd_deployment_snapshots_one_per_deployment UNIQUE (organization_id, deployment_id);
