-- What led to a rollout has the latest failures of deployments, and not their whole journals (D58).

-- Outside of a transaction, so that the table is written meanwhile. One that was interrupted is begun again.
-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS cd_deployment_transitions_failures;
CREATE INDEX CONCURRENTLY cd_deployment_transitions_failures ON cd_deployment_transitions (organization_id, deployment_id, id)
    WHERE event IN ('fail', 'degrade');

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS cd_deployment_transitions_failures;
