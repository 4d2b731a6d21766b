-- Pipelines: for each application, the environments that it is promoted through.

-- +goose Up
CREATE TABLE cd_application_flow_definitions (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_application_flow_definitions_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    version         integer NOT NULL,
    definition      text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_application_flow_definitions_of_application UNIQUE (organization_id, application_id, id),
    CONSTRAINT cd_application_flow_definitions_version_is_unique UNIQUE (organization_id, application_id, version),
    CONSTRAINT cd_application_flow_definitions_application FOREIGN KEY (organization_id, application_id)
        REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_application_flow_definitions_definition_is_given CHECK (definition <> ''),
    CONSTRAINT cd_application_flow_definitions_version_counts CHECK (version > 0)
);
COMMENT ON COLUMN cd_application_flow_definitions.definition IS 'The pipeline as it was written, to the byte; the same shape for every driver.';
CREATE TRIGGER cd_application_flow_definitions_are_append_only BEFORE UPDATE
    OR DELETE ON cd_application_flow_definitions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_application_flow_definitions_are_kept BEFORE TRUNCATE ON cd_application_flow_definitions EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_application_environments (
    id               bigint GENERATED ALWAYS AS IDENTITY,
    organization_id  bigint NOT NULL CONSTRAINT cd_application_environments_organization REFERENCES cd_organizations (id),
    application_id   bigint NOT NULL,
    environment_id   bigint NOT NULL,
    readiness        text NOT NULL DEFAULT 'pending',
    readiness_reason text NOT NULL DEFAULT '',
    discovered       jsonb,
    setup_attempt    integer NOT NULL DEFAULT 0,
    setup_wanted     boolean NOT NULL DEFAULT true,
    workflow_ref     text,
    current          boolean NOT NULL DEFAULT true,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_application_environments_is_unique UNIQUE (organization_id, application_id, environment_id),
    CONSTRAINT cd_application_environments_application FOREIGN KEY (organization_id, application_id)
        REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_application_environments_environment FOREIGN KEY (organization_id, environment_id)
        REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_application_environments_not_ready_has_reason CHECK (readiness <> 'not_ready' OR readiness_reason <> ''),
    CONSTRAINT cd_application_environments_readiness_is_known CHECK (readiness IN ('pending', 'ready', 'not_ready'))
);
COMMENT ON COLUMN cd_application_environments.current IS 'The latest pipeline goes there. One that an earlier pipeline went to keeps its row, for the history.';
COMMENT ON COLUMN cd_application_environments.discovered IS 'What the driver found and wants back at every deploy; opaque.';
COMMENT ON COLUMN cd_application_environments.setup_attempt IS 'How many setups have been submitted; part of their workflow ids.';
COMMENT ON COLUMN cd_application_environments.setup_wanted IS 'A setup is to be submitted as soon as the environment is ready.';
CREATE INDEX cd_application_environments_waiting ON cd_application_environments (organization_id, environment_id) WHERE setup_wanted;
CREATE TRIGGER cd_application_environments_touch BEFORE UPDATE ON cd_application_environments FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_application_environment_reconciliations (
    id                         bigint GENERATED ALWAYS AS IDENTITY,
    organization_id            bigint NOT NULL CONSTRAINT cd_application_environment_reconciliations_organization
        REFERENCES cd_organizations (id),
    application_environment_id bigint NOT NULL,
    revision                   text NOT NULL,
    expected_revision          text NOT NULL,
    automatic                  boolean NOT NULL,
    drift                      text NOT NULL,
    since                      timestamptz NOT NULL,
    observed_at                timestamptz NOT NULL,
    created_at                 timestamptz NOT NULL DEFAULT now(),
    updated_at                 timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_application_environment_reconciliations_is_unique UNIQUE (organization_id, application_environment_id),
    CONSTRAINT cd_application_environment_reconciliations_subject FOREIGN KEY (organization_id, application_environment_id)
        REFERENCES cd_application_environments (organization_id, id),
    CONSTRAINT cd_application_environment_reconciliations_since_is_before CHECK (since <= observed_at)
);
COMMENT ON COLUMN cd_application_environment_reconciliations.automatic IS 'Whether the reconciler moves by itself, which nobody here has asked for.';
COMMENT ON COLUMN cd_application_environment_reconciliations.drift IS 'What differs from what was deployed, in words; empty for nothing. since is how long that has been so.';
COMMENT ON COLUMN cd_application_environment_reconciliations.revision IS 'What is in force, by the reconciler''s own word; empty when it does not say.';
CREATE TRIGGER cd_application_environment_reconciliations_touch BEFORE UPDATE ON cd_application_environment_reconciliations FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_application_policies (
    id                     bigint GENERATED ALWAYS AS IDENTITY,
    organization_id        bigint NOT NULL CONSTRAINT cd_application_policies_organization REFERENCES cd_organizations (id),
    application_id         bigint NOT NULL,
    rollback_on_failed     boolean NOT NULL,
    rollback_on_degraded   boolean NOT NULL,
    degraded_after_seconds integer NOT NULL,
    rollback_in_full       boolean NOT NULL DEFAULT false,
    on_failure             text NOT NULL DEFAULT 'stop',
    on_newer               text NOT NULL DEFAULT 'refuse',
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_application_policies_one_per_application UNIQUE (organization_id, application_id),
    CONSTRAINT cd_application_policies_application FOREIGN KEY (organization_id, application_id)
        REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_application_policies_failure_is_known CHECK (on_failure IN ('stop', 'abort', 'rollback')),
    CONSTRAINT cd_application_policies_newer_is_known CHECK (on_newer IN ('refuse', 'queue', 'supersede')),
    CONSTRAINT cd_application_policies_wait_is_bounded CHECK (degraded_after_seconds >= 0 AND degraded_after_seconds <= 604800)
);
COMMENT ON TABLE cd_application_policies IS 'No row: the defaults of the design, at once on failed and after 30 minutes on degraded.';
COMMENT ON COLUMN cd_application_policies.on_failure IS 'What happens to the deployments under way: left as they are, aborted, or rolled back at once.';
COMMENT ON COLUMN cd_application_policies.on_newer IS 'What becomes of a newer version set while a rollout is active.';
COMMENT ON COLUMN cd_application_policies.rollback_in_full IS 'A way back is promoted at once, without the gates by weight.';
CREATE TRIGGER cd_application_policies_touch BEFORE UPDATE ON cd_application_policies FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_application_policies;
DROP TABLE cd_application_environment_reconciliations;
DROP TABLE cd_application_environments;
DROP TABLE cd_application_flow_definitions;
