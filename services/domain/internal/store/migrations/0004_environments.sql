-- Environments, the driver bound to each, and the bytes of the driver bundles in use. A binding is append-only (R12).

-- +goose Up
CREATE TABLE cd_environments (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id    bigint NOT NULL CONSTRAINT cd_environments_organization REFERENCES cd_organizations (id),
    name               text NOT NULL CONSTRAINT cd_environments_name_is_given CHECK (name <> ''),
    description        text NOT NULL DEFAULT '',
    tier               text NOT NULL CONSTRAINT cd_environments_tier_is_known CHECK (tier IN ('development', 'qa', 'staging', 'production')),
    readiness          text NOT NULL DEFAULT 'pending' CONSTRAINT cd_environments_readiness_is_known CHECK (readiness IN ('pending', 'ready', 'not_ready')),
    readiness_reason   text NOT NULL DEFAULT '',
    onboarding_attempt integer NOT NULL DEFAULT 0,
    workflow_ref       text,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_environments_name_is_unique UNIQUE (organization_id, name),
    CONSTRAINT cd_environments_shard UNIQUE (organization_id, id),
    CONSTRAINT cd_environments_not_ready_has_reason CHECK (readiness <> 'not_ready' OR readiness_reason <> '')
);
COMMENT ON COLUMN cd_environments.readiness IS 'Whether it may be deployed to (E59, D15).';
COMMENT ON COLUMN cd_environments.onboarding_attempt IS 'How many onboardings have been submitted; part of their workflow ids.';
COMMENT ON COLUMN cd_environments.workflow_ref IS 'The handle of the latest onboarding (E20); opaque.';

CREATE TABLE cd_environment_driver_bindings (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_environment_driver_bindings_organization REFERENCES cd_organizations (id),
    environment_id  bigint NOT NULL,
    version         integer NOT NULL CONSTRAINT cd_environment_driver_bindings_version_counts CHECK (version > 0),
    driver_ref      text NOT NULL CONSTRAINT cd_environment_driver_bindings_ref_is_given CHECK (driver_ref <> ''),
    driver_config   jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_environment_driver_bindings_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_environment_driver_bindings_version_is_unique UNIQUE (organization_id, environment_id, version),
    CONSTRAINT cd_environment_driver_bindings_of_environment UNIQUE (organization_id, environment_id, id)
);
COMMENT ON COLUMN cd_environment_driver_bindings.driver_ref IS 'name@major; opaque to the tables.';
COMMENT ON COLUMN cd_environment_driver_bindings.driver_config IS 'Opaque to the tables; valid against the schema of the driver when it was written.';

CREATE TABLE cd_driver_bundles (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_driver_bundles_organization REFERENCES cd_organizations (id),
    digest          text NOT NULL CONSTRAINT cd_driver_bundles_digest_is_given CHECK (digest <> ''),
    driver_ref      text NOT NULL,
    content         bytea NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_driver_bundles_digest_is_unique UNIQUE (organization_id, digest)
);
COMMENT ON TABLE cd_driver_bundles IS 'The bytes of every bundle that a rollout or a hand-over uses, so that a past run is reproducible to the byte (D7).';

CREATE TRIGGER cd_environments_touch BEFORE UPDATE ON cd_environments FOR EACH ROW EXECUTE FUNCTION cd_touch();
CREATE TRIGGER cd_environment_driver_bindings_are_append_only BEFORE UPDATE OR DELETE ON cd_environment_driver_bindings FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_environment_driver_bindings_are_kept BEFORE TRUNCATE ON cd_environment_driver_bindings EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_driver_bundles_are_immutable BEFORE UPDATE ON cd_driver_bundles FOR EACH ROW EXECUTE FUNCTION cd_refuse();

-- +goose Down
DROP TABLE cd_driver_bundles;
DROP TABLE cd_environment_driver_bindings;
DROP TABLE cd_environments;
