-- Versions and the sets that are promoted. Both are immutable (E8, R3).

-- +goose Up
CREATE TABLE cd_versions (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id    bigint NOT NULL CONSTRAINT cd_versions_organization REFERENCES cd_organizations (id),
    artifact_source_id bigint NOT NULL,
    name               text NOT NULL CONSTRAINT cd_versions_name_is_given CHECK (name <> ''),
    digest             text NOT NULL CONSTRAINT cd_versions_digest_is_given CHECK (digest <> ''),
    reference          text NOT NULL,
    published_at       timestamptz NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_versions_artifact_source FOREIGN KEY (organization_id, artifact_source_id) REFERENCES cd_artifact_sources (organization_id, id),
    CONSTRAINT cd_versions_name_is_unique UNIQUE (organization_id, artifact_source_id, name),
    CONSTRAINT cd_versions_digest_is_unique UNIQUE (organization_id, artifact_source_id, digest),
    CONSTRAINT cd_versions_shard UNIQUE (organization_id, id),
    CONSTRAINT cd_versions_of_source UNIQUE (organization_id, artifact_source_id, id)
);
COMMENT ON COLUMN cd_versions.published_at IS 'When the artifact was published, never later than its arrival: what "latest" is decided by, whatever order events come in.';
CREATE INDEX cd_versions_by_age ON cd_versions (organization_id, artifact_source_id, published_at DESC, id DESC);

CREATE TABLE cd_version_sets (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_version_sets_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    name            text NOT NULL CONSTRAINT cd_version_sets_name_is_given CHECK (name <> ''),
    entries_digest  text NOT NULL,
    entries_count   integer NOT NULL CONSTRAINT cd_version_sets_has_entries CHECK (entries_count > 0),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_version_sets_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_version_sets_name_is_unique UNIQUE (organization_id, application_id, name),
    CONSTRAINT cd_version_sets_entries_are_unique UNIQUE (organization_id, application_id, entries_digest),
    CONSTRAINT cd_version_sets_shard UNIQUE (organization_id, id),
    CONSTRAINT cd_version_sets_of_application UNIQUE (organization_id, application_id, id)
);
COMMENT ON COLUMN cd_version_sets.entries_digest IS 'SHA-256 over the sorted (source, version) pairs: identical sets are one set (R9).';
COMMENT ON COLUMN cd_version_sets.entries_count IS 'How many entries the set was made with; an entry added later is refused at commit.';

CREATE TABLE cd_version_set_entries (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id    bigint NOT NULL CONSTRAINT cd_version_set_entries_organization REFERENCES cd_organizations (id),
    version_set_id     bigint NOT NULL,
    version_id         bigint NOT NULL,
    artifact_source_id bigint NOT NULL,
    service_id         bigint NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_version_set_entries_version_set FOREIGN KEY (organization_id, version_set_id) REFERENCES cd_version_sets (organization_id, id),
    CONSTRAINT cd_version_set_entries_version_of_source FOREIGN KEY (organization_id, artifact_source_id, version_id) REFERENCES cd_versions (organization_id, artifact_source_id, id),
    CONSTRAINT cd_version_set_entries_source_of_service FOREIGN KEY (organization_id, service_id, artifact_source_id) REFERENCES cd_artifact_sources (organization_id, service_id, id),
    CONSTRAINT cd_version_set_entries_one_version_per_source UNIQUE (organization_id, version_set_id, artifact_source_id)
);
CREATE INDEX cd_version_set_entries_by_version ON cd_version_set_entries (organization_id, version_id);

-- +goose StatementBegin
CREATE FUNCTION cd_version_set_is_whole() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    the_set cd_version_sets%ROWTYPE;
    found   integer;
BEGIN
    IF TG_TABLE_NAME = 'cd_version_sets' THEN
        the_set := NEW;
    ELSE
        SELECT * INTO the_set FROM cd_version_sets WHERE organization_id = NEW.organization_id AND id = NEW.version_set_id;
    END IF;
    SELECT count(*) INTO found FROM cd_version_set_entries WHERE organization_id = the_set.organization_id AND version_set_id = the_set.id;
    IF found <> the_set.entries_count THEN
        RAISE EXCEPTION 'version set % has % entries, but was made with %', the_set.id, found, the_set.entries_count
            USING ERRCODE = 'integrity_constraint_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = 'cd_version_sets_is_whole';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER cd_version_sets_is_whole AFTER INSERT ON cd_version_sets DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION cd_version_set_is_whole();
CREATE CONSTRAINT TRIGGER cd_version_set_entries_is_whole AFTER INSERT ON cd_version_set_entries DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION cd_version_set_is_whole();

CREATE TRIGGER cd_versions_are_immutable BEFORE UPDATE OR DELETE ON cd_versions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_versions_are_kept BEFORE TRUNCATE ON cd_versions EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_version_sets_are_immutable BEFORE UPDATE OR DELETE ON cd_version_sets FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_version_sets_are_kept BEFORE TRUNCATE ON cd_version_sets EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_version_set_entries_are_immutable BEFORE UPDATE OR DELETE ON cd_version_set_entries FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_version_set_entries_are_kept BEFORE TRUNCATE ON cd_version_set_entries EXECUTE FUNCTION cd_refuse();

-- +goose Down
DROP TABLE cd_version_set_entries;
DROP TABLE cd_version_sets;
DROP FUNCTION cd_version_set_is_whole();
DROP TABLE cd_versions;
