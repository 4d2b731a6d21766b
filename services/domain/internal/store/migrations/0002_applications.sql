-- Applications, their services, and where the artifacts of a service come from.

-- +goose Up
CREATE TABLE cd_applications (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_applications_organization REFERENCES cd_organizations (id),
    name            text NOT NULL CONSTRAINT cd_applications_name_is_given CHECK (name <> ''),
    description     text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_applications_name_is_unique UNIQUE (organization_id, name),
    CONSTRAINT cd_applications_shard UNIQUE (organization_id, id)
);

CREATE TABLE cd_services (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_services_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    name            text NOT NULL CONSTRAINT cd_services_name_is_given CHECK (name <> ''),
    description     text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_services_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_services_name_is_unique UNIQUE (organization_id, application_id, name),
    CONSTRAINT cd_services_shard UNIQUE (organization_id, id)
);

CREATE TABLE cd_artifact_sources (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_artifact_sources_organization REFERENCES cd_organizations (id),
    service_id      bigint NOT NULL,
    source_ref      text NOT NULL CONSTRAINT cd_artifact_sources_ref_is_given CHECK (source_ref <> ''),
    source_config   jsonb NOT NULL,
    match_key       text NOT NULL CONSTRAINT cd_artifact_sources_key_is_given CHECK (match_key <> ''),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_artifact_sources_service FOREIGN KEY (organization_id, service_id) REFERENCES cd_services (organization_id, id),
    CONSTRAINT cd_artifact_sources_shard UNIQUE (organization_id, id),
    CONSTRAINT cd_artifact_sources_of_service UNIQUE (organization_id, service_id, id)
);
COMMENT ON COLUMN cd_artifact_sources.source_ref IS 'The kind of source, versioned (oci-image@1); opaque to the tables.';
COMMENT ON COLUMN cd_artifact_sources.source_config IS 'The configuration of that kind; opaque to the tables.';
COMMENT ON COLUMN cd_artifact_sources.match_key IS 'Derived from source_config by the kind of source: what a published artifact is looked up by.';
CREATE INDEX cd_artifact_sources_by_match_key ON cd_artifact_sources (match_key, organization_id);

CREATE TRIGGER cd_applications_touch BEFORE UPDATE ON cd_applications FOR EACH ROW EXECUTE FUNCTION cd_touch();
CREATE TRIGGER cd_services_touch BEFORE UPDATE ON cd_services FOR EACH ROW EXECUTE FUNCTION cd_touch();
CREATE TRIGGER cd_artifact_sources_touch BEFORE UPDATE ON cd_artifact_sources FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_artifact_sources;
DROP TABLE cd_services;
DROP TABLE cd_applications;
