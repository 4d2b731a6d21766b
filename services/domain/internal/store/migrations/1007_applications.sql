-- Applications, their services and where the artifacts of these come from.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_keep_name_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cd_application_name_ends (organization_id, application_id, name_end)
    SELECT NEW.organization_id, NEW.id, substr(lower(NEW.name), n) FROM generate_series(1, length(NEW.name)) n;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TABLE cd_applications (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_applications_organization REFERENCES cd_organizations (id),
    name            text NOT NULL,
    description     text NOT NULL DEFAULT '',
    archived_at     timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_applications_name_is_unique UNIQUE (organization_id, name),
    CONSTRAINT cd_applications_name_is_given CHECK (name <> '')
);
COMMENT ON COLUMN cd_applications.archived_at IS 'Since when nothing is rolled out any more, and no version is taken; null while it lives.';
CREATE TRIGGER cd_applications_keep_name_ends AFTER INSERT ON cd_applications FOR EACH ROW EXECUTE FUNCTION cd_keep_name_ends();
CREATE TRIGGER cd_applications_name_is_immutable BEFORE UPDATE ON cd_applications FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('name');
CREATE TRIGGER cd_applications_touch BEFORE UPDATE ON cd_applications FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_application_name_ends (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_application_name_ends_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    name_end        text COLLATE "C" NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_application_name_ends_are_unique UNIQUE (organization_id, name_end, application_id),
    CONSTRAINT cd_application_name_ends_application FOREIGN KEY (organization_id, application_id)
        REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_application_name_ends_are_not_empty CHECK (name_end <> '')
);
COMMENT ON TABLE cd_application_name_ends IS 'The name of each application in lower case from each of its letters to its end: shop, hop, op, p.';
CREATE TRIGGER cd_application_name_ends_are_append_only BEFORE UPDATE
    OR DELETE ON cd_application_name_ends FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_application_name_ends_are_kept BEFORE TRUNCATE ON cd_application_name_ends EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_services (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_services_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    name            text NOT NULL,
    description     text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_services_name_is_unique UNIQUE (organization_id, application_id, name),
    CONSTRAINT cd_services_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_services_name_is_given CHECK (name <> '')
);
CREATE TRIGGER cd_services_touch BEFORE UPDATE ON cd_services FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_artifact_sources (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_artifact_sources_organization REFERENCES cd_organizations (id),
    service_id      bigint NOT NULL,
    source_ref      text NOT NULL,
    source_config   jsonb NOT NULL,
    match_key       text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_artifact_sources_of_service UNIQUE (organization_id, service_id, id),
    CONSTRAINT cd_artifact_sources_shard UNIQUE (organization_id, id),
    CONSTRAINT cd_artifact_sources_service FOREIGN KEY (organization_id, service_id) REFERENCES cd_services (organization_id, id),
    CONSTRAINT cd_artifact_sources_key_is_given CHECK (match_key <> ''),
    CONSTRAINT cd_artifact_sources_ref_is_given CHECK (source_ref <> '')
);
COMMENT ON COLUMN cd_artifact_sources.match_key IS 'Derived from source_config by the kind of source: what a published artifact is looked up by.';
COMMENT ON COLUMN cd_artifact_sources.source_config IS 'The configuration of that kind; opaque to the tables.';
COMMENT ON COLUMN cd_artifact_sources.source_ref IS 'The kind of source, versioned (oci-image@1); opaque to the tables.';
CREATE INDEX cd_artifact_sources_by_match_key ON cd_artifact_sources (match_key, organization_id);
CREATE TRIGGER cd_artifact_sources_touch BEFORE UPDATE ON cd_artifact_sources FOR EACH ROW EXECUTE FUNCTION cd_touch();

ALTER TABLE cd_changes ADD CONSTRAINT cd_changes_application FOREIGN KEY (organization_id, application_id)
    REFERENCES cd_applications (organization_id, id);

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_source(key text) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT DISTINCT organization_id FROM cd_artifact_sources WHERE match_key = key ORDER BY organization_id;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_source IS 'An artifact belongs to everybody who points at it.';

-- +goose StatementBegin
CREATE FUNCTION cd_sources_after(behind bigint, most integer)
    RETURNS TABLE(id bigint, organization_id bigint, source_ref text, source_config jsonb)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT s.id, s.organization_id, s.source_ref, s.source_config FROM cd_artifact_sources s WHERE s.id > behind ORDER BY s.id LIMIT most;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_sources_after IS 'One service looks at the sources of all organizations; it learns nothing else about them.';

-- +goose Down
DROP FUNCTION cd_sources_after;
DROP FUNCTION cd_organizations_with_source;
ALTER TABLE cd_changes DROP CONSTRAINT cd_changes_application;
DROP TABLE cd_artifact_sources;
DROP TABLE cd_services;
DROP TABLE cd_application_name_ends;
DROP TABLE cd_applications;
DROP FUNCTION cd_keep_name_ends;
