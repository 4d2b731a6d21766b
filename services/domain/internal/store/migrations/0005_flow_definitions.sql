-- Pipelines, append-only (R13), and what is known of each application in each environment its pipeline deploys to (D15).

-- +goose Up
CREATE TABLE cd_application_flow_definitions (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_application_flow_definitions_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    version         integer NOT NULL CONSTRAINT cd_application_flow_definitions_version_counts CHECK (version > 0),
    definition      text NOT NULL CONSTRAINT cd_application_flow_definitions_definition_is_given CHECK (definition <> ''),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_application_flow_definitions_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_application_flow_definitions_version_is_unique UNIQUE (organization_id, application_id, version),
    CONSTRAINT cd_application_flow_definitions_of_application UNIQUE (organization_id, application_id, id)
);
COMMENT ON COLUMN cd_application_flow_definitions.definition IS 'The pipeline as it was written, to the byte; the same shape for every driver (R34).';

CREATE TABLE cd_application_environments (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id  bigint NOT NULL CONSTRAINT cd_application_environments_organization REFERENCES cd_organizations (id),
    application_id   bigint NOT NULL,
    environment_id   bigint NOT NULL,
    readiness        text NOT NULL DEFAULT 'pending' CONSTRAINT cd_application_environments_readiness_is_known CHECK (readiness IN ('pending', 'ready', 'not_ready')),
    readiness_reason text NOT NULL DEFAULT '',
    discovered       jsonb,
    setup_attempt    integer NOT NULL DEFAULT 0,
    setup_wanted     boolean NOT NULL DEFAULT true,
    workflow_ref     text,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_application_environments_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_application_environments_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_application_environments_is_unique UNIQUE (organization_id, application_id, environment_id),
    CONSTRAINT cd_application_environments_not_ready_has_reason CHECK (readiness <> 'not_ready' OR readiness_reason <> '')
);
COMMENT ON COLUMN cd_application_environments.discovered IS 'What the driver found and wants back at every deploy; opaque (R1).';
COMMENT ON COLUMN cd_application_environments.setup_attempt IS 'How many setups have been submitted; part of their workflow ids.';
COMMENT ON COLUMN cd_application_environments.setup_wanted IS 'A setup is to be submitted as soon as the environment is ready.';
CREATE INDEX cd_application_environments_waiting ON cd_application_environments (organization_id, environment_id) WHERE setup_wanted;

CREATE TRIGGER cd_application_flow_definitions_are_append_only BEFORE UPDATE OR DELETE ON cd_application_flow_definitions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_application_flow_definitions_are_kept BEFORE TRUNCATE ON cd_application_flow_definitions EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_application_environments_touch BEFORE UPDATE ON cd_application_environments FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_application_environments;
DROP TABLE cd_application_flow_definitions;
