-- Drivers that were pulled from registries, for all replicas and for ever: a start needs no registry (D7, R21). They are the
-- installation's and no organization's, as the built-in ones are, so these tables are outside of the walls.

-- +goose Up
CREATE TABLE driver_artifacts (
    digest     text PRIMARY KEY CONSTRAINT driver_artifacts_digest_is_sha256 CHECK (digest ~ '^sha256:[0-9a-f]{64}$'),
    drivers    text[] NOT NULL CONSTRAINT driver_artifacts_have_drivers CHECK (cardinality(drivers) > 0),
    content    bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE driver_artifacts IS 'The layers of OCI artifacts with drivers, checked when they were pulled.';
COMMENT ON COLUMN driver_artifacts.digest IS 'That of the manifest, which has the layer''s.';
COMMENT ON COLUMN driver_artifacts.drivers IS 'name@major of each driver inside.';

CREATE TABLE driver_artifact_names (
    reference  text NOT NULL,
    digest     text NOT NULL CONSTRAINT driver_artifact_names_artifact REFERENCES driver_artifacts (digest),
    asked_at   timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT driver_artifact_names_reference_and_digest PRIMARY KEY (reference, digest)
);
COMMENT ON TABLE driver_artifact_names IS 'Which artifacts a reference has named; the one that was asked about last is in force.';
COMMENT ON COLUMN driver_artifact_names.asked_at IS 'When a replica last asked the registry and was told this artifact, by this database''s clock.';

CREATE TRIGGER driver_artifacts_are_immutable BEFORE UPDATE OR DELETE ON driver_artifacts FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER driver_artifacts_are_kept BEFORE TRUNCATE ON driver_artifacts EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER driver_artifact_names_are_kept BEFORE DELETE ON driver_artifact_names FOR EACH ROW EXECUTE FUNCTION cd_refuse();

-- +goose Down
DROP TABLE driver_artifact_names;
DROP TABLE driver_artifacts;
