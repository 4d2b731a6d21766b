-- Rollouts, the environments they go through, and the deployment of each service. What they pin never changes; their
-- state is a cache of the journal (R42).

-- +goose Up
CREATE TABLE cd_rollouts (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id    bigint NOT NULL CONSTRAINT cd_rollouts_organization REFERENCES cd_organizations (id),
    application_id     bigint NOT NULL,
    version_set_id     bigint NOT NULL,
    flow_definition_id bigint NOT NULL,
    workflow_ref       text,
    state              smallint NOT NULL DEFAULT 0 CONSTRAINT cd_rollouts_state_is_known CHECK (state BETWEEN 0 AND 5),
    started_at         timestamptz,
    finished_at        timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_rollouts_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_rollouts_version_set FOREIGN KEY (organization_id, application_id, version_set_id) REFERENCES cd_version_sets (organization_id, application_id, id),
    CONSTRAINT cd_rollouts_flow_definition FOREIGN KEY (organization_id, application_id, flow_definition_id) REFERENCES cd_application_flow_definitions (organization_id, application_id, id),
    CONSTRAINT cd_rollouts_finished_when_ended CHECK ((state >= 3) = (finished_at IS NOT NULL)),
    CONSTRAINT cd_rollouts_shard UNIQUE (organization_id, id)
);
COMMENT ON COLUMN cd_rollouts.state IS '0 pending 1 in_progress 2 paused 3 completed 4 failed 5 cancelled';
COMMENT ON COLUMN cd_rollouts.workflow_ref IS 'The handle of the workflow that drives it (D8); opaque; null until it has been handed over.';
CREATE UNIQUE INDEX cd_rollouts_one_active_per_application ON cd_rollouts (application_id) WHERE state IN (0, 1, 2);
CREATE INDEX cd_rollouts_by_application ON cd_rollouts (organization_id, application_id, id DESC);

CREATE TABLE cd_rollout_environments (
    id                      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id         bigint NOT NULL CONSTRAINT cd_rollout_environments_organization REFERENCES cd_organizations (id),
    rollout_id              bigint NOT NULL,
    environment_id          bigint NOT NULL,
    position                integer NOT NULL CONSTRAINT cd_rollout_environments_position_counts CHECK (position > 0),
    driver_binding_id       bigint NOT NULL,
    driver_digest           text NOT NULL,
    previous_version_set_id bigint,
    state                   smallint NOT NULL DEFAULT 0 CONSTRAINT cd_rollout_environments_state_is_known CHECK (state BETWEEN 0 AND 5),
    started_at              timestamptz,
    finished_at             timestamptz,
    created_at              timestamptz NOT NULL DEFAULT now(),
    updated_at              timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_rollout_environments_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_environments_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_rollout_environments_driver_binding FOREIGN KEY (organization_id, environment_id, driver_binding_id) REFERENCES cd_environment_driver_bindings (organization_id, environment_id, id),
    CONSTRAINT cd_rollout_environments_driver_bundle FOREIGN KEY (organization_id, driver_digest) REFERENCES cd_driver_bundles (organization_id, digest),
    CONSTRAINT cd_rollout_environments_previous_version_set FOREIGN KEY (organization_id, previous_version_set_id) REFERENCES cd_version_sets (organization_id, id),
    CONSTRAINT cd_rollout_environments_finished_when_ended CHECK ((state >= 3) = (finished_at IS NOT NULL)),
    CONSTRAINT cd_rollout_environments_environment_is_unique UNIQUE (organization_id, rollout_id, environment_id),
    CONSTRAINT cd_rollout_environments_position_is_unique UNIQUE (organization_id, rollout_id, position),
    CONSTRAINT cd_rollout_environments_shard UNIQUE (organization_id, id)
);
COMMENT ON COLUMN cd_rollout_environments.driver_digest IS 'The bundle that this rollout runs here, to the byte (D7).';
COMMENT ON COLUMN cd_rollout_environments.previous_version_set_id IS 'The set of the last rollout that completed here: what is replaced. NULL while none has (R15).';
CREATE INDEX cd_rollout_environments_by_environment ON cd_rollout_environments (organization_id, environment_id, rollout_id DESC);

CREATE TABLE cd_deployments (
    id                     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id        bigint NOT NULL CONSTRAINT cd_deployments_organization REFERENCES cd_organizations (id),
    rollout_environment_id bigint NOT NULL,
    service_id             bigint NOT NULL,
    state                  smallint NOT NULL DEFAULT 0 CONSTRAINT cd_deployments_state_is_known CHECK (state BETWEEN 0 AND 5),
    started_at             timestamptz,
    finished_at            timestamptz,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_deployments_rollout_environment FOREIGN KEY (organization_id, rollout_environment_id) REFERENCES cd_rollout_environments (organization_id, id),
    CONSTRAINT cd_deployments_service FOREIGN KEY (organization_id, service_id) REFERENCES cd_services (organization_id, id),
    CONSTRAINT cd_deployments_finished_when_ended CHECK ((state >= 2) = (finished_at IS NOT NULL)),
    CONSTRAINT cd_deployments_service_is_unique UNIQUE (organization_id, rollout_environment_id, service_id),
    CONSTRAINT cd_deployments_shard UNIQUE (organization_id, id)
);
COMMENT ON COLUMN cd_deployments.state IS '0 pending 1 deploying 2 healthy 3 degraded 4 failed 5 cancelled';

CREATE TABLE cd_deployment_snapshots (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_deployment_snapshots_organization REFERENCES cd_organizations (id),
    deployment_id   bigint NOT NULL,
    commit_sha      text NOT NULL CONSTRAINT cd_deployment_snapshots_commit_is_given CHECK (commit_sha <> ''),
    manifest_digest text NOT NULL,
    parameters      jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_deployment_snapshots_deployment FOREIGN KEY (organization_id, deployment_id) REFERENCES cd_deployments (organization_id, id),
    CONSTRAINT cd_deployment_snapshots_one_per_deployment UNIQUE (organization_id, deployment_id)
);
COMMENT ON TABLE cd_deployment_snapshots IS 'What exactly was deployed (E46, D15). Never a secret.';

CREATE TRIGGER cd_rollouts_touch BEFORE UPDATE ON cd_rollouts FOR EACH ROW EXECUTE FUNCTION cd_touch();
CREATE TRIGGER cd_rollouts_pins_are_immutable BEFORE UPDATE ON cd_rollouts FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'application_id', 'version_set_id', 'flow_definition_id', 'created_at');
CREATE TRIGGER cd_rollouts_ended_is_final BEFORE UPDATE ON cd_rollouts FOR EACH ROW
    WHEN (OLD.state >= 3 AND NEW.state <> OLD.state) EXECUTE FUNCTION cd_refuse_change_of_ended();
CREATE TRIGGER cd_rollouts_are_kept BEFORE DELETE ON cd_rollouts FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_environments_touch BEFORE UPDATE ON cd_rollout_environments FOR EACH ROW EXECUTE FUNCTION cd_touch();
CREATE TRIGGER cd_rollout_environments_pins_are_immutable BEFORE UPDATE ON cd_rollout_environments FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'rollout_id', 'environment_id', 'position', 'driver_binding_id', 'driver_digest', 'previous_version_set_id', 'created_at');
CREATE TRIGGER cd_rollout_environments_ended_is_final BEFORE UPDATE ON cd_rollout_environments FOR EACH ROW
    WHEN (OLD.state >= 3 AND NEW.state <> OLD.state) EXECUTE FUNCTION cd_refuse_change_of_ended();
CREATE TRIGGER cd_rollout_environments_are_kept BEFORE DELETE ON cd_rollout_environments FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_deployments_touch BEFORE UPDATE ON cd_deployments FOR EACH ROW EXECUTE FUNCTION cd_touch();
CREATE TRIGGER cd_deployments_pins_are_immutable BEFORE UPDATE ON cd_deployments FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'rollout_environment_id', 'service_id', 'created_at');
CREATE TRIGGER cd_deployments_ended_is_final BEFORE UPDATE ON cd_deployments FOR EACH ROW
    WHEN (OLD.state >= 2 AND NEW.state <> OLD.state) EXECUTE FUNCTION cd_refuse_change_of_ended();
CREATE TRIGGER cd_deployments_are_kept BEFORE DELETE ON cd_deployments FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_deployment_snapshots_are_immutable BEFORE UPDATE OR DELETE ON cd_deployment_snapshots FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_deployment_snapshots_are_kept BEFORE TRUNCATE ON cd_deployment_snapshots EXECUTE FUNCTION cd_refuse();

-- +goose Down
DROP TABLE cd_deployment_snapshots;
DROP TABLE cd_deployments;
DROP TABLE cd_rollout_environments;
DROP TABLE cd_rollouts;
