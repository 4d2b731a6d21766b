-- Drivers: bundles of programs, and the artifacts that they come from.

-- +goose Up
CREATE TABLE driver_artifacts (
    digest     text PRIMARY KEY,
    drivers    text[] NOT NULL,
    content    bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT driver_artifacts_digest_is_sha256 CHECK (digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT driver_artifacts_have_drivers CHECK (cardinality(drivers) > 0)
);
COMMENT ON TABLE driver_artifacts IS 'The layers of OCI artifacts with drivers, checked when they were pulled.';
COMMENT ON COLUMN driver_artifacts.digest IS 'That of the manifest, which has the layer''s.';
COMMENT ON COLUMN driver_artifacts.drivers IS 'name@major of each driver inside.';
CREATE TRIGGER driver_artifacts_are_immutable BEFORE UPDATE OR DELETE ON driver_artifacts FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER driver_artifacts_are_kept BEFORE TRUNCATE ON driver_artifacts EXECUTE FUNCTION cd_refuse();

CREATE TABLE driver_artifact_names (
    reference  text NOT NULL,
    digest     text NOT NULL CONSTRAINT driver_artifact_names_artifact REFERENCES driver_artifacts (digest),
    asked_at   timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT driver_artifact_names_reference_and_digest PRIMARY KEY (reference, digest)
);
COMMENT ON TABLE driver_artifact_names IS 'Which artifacts a reference has named; the one that was asked about last is in force.';
COMMENT ON COLUMN driver_artifact_names.asked_at IS 'When a replica last asked the registry and got this artifact, by this database''s clock.';
CREATE TRIGGER driver_artifact_names_are_kept BEFORE DELETE ON driver_artifact_names FOR EACH ROW EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_driver_bundles (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_driver_bundles_organization REFERENCES cd_organizations (id),
    digest          text NOT NULL,
    driver_ref      text NOT NULL,
    content         bytea NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_driver_bundles_digest_is_unique UNIQUE (organization_id, digest),
    CONSTRAINT cd_driver_bundles_digest_is_given CHECK (digest <> '')
);
COMMENT ON TABLE cd_driver_bundles IS 'The bytes of every bundle that a rollout or a hand-over uses, so that a past run is reproducible to the byte.';
CREATE TRIGGER cd_driver_bundles_are_immutable BEFORE UPDATE ON cd_driver_bundles FOR EACH ROW EXECUTE FUNCTION cd_refuse();

-- +goose Down
DROP TABLE cd_driver_bundles;
DROP TABLE driver_artifact_names;
DROP TABLE driver_artifacts;
