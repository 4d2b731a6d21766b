-- Which environments are deployed from an overlay or a chart of a repository is known without reading pipelines (R4-27, D60).

-- +goose Up
CREATE TABLE cd_forge_places (
    organization_id bigint NOT NULL CONSTRAINT cd_forge_places_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    environment     text NOT NULL,
    repository      text NOT NULL CONSTRAINT cd_forge_places_repository_is_bounded CHECK (octet_length(repository) BETWEEN 1 AND 1000),
    ssh             boolean NOT NULL,
    target          jsonb NOT NULL CONSTRAINT cd_forge_places_target_is_bounded CHECK (length(target::text) <= 16384),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_forge_places_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id)
);
COMMENT ON TABLE cd_forge_places IS 'What the newest pipeline of each application says of overlays and charts in repositories; no record.';
COMMENT ON COLUMN cd_forge_places.repository IS 'Host and path, in lower case; without the port if it is reached over SSH.';
COMMENT ON COLUMN cd_forge_places.target IS 'The overlay or the chart. Nothing of it is a value of the configuration that templates see, other than names.';
CREATE INDEX cd_forge_places_by_repository ON cd_forge_places (organization_id, repository);
CREATE INDEX cd_forge_places_by_application ON cd_forge_places (organization_id, application_id);
CREATE TRIGGER cd_forge_places_touch BEFORE UPDATE ON cd_forge_places FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_forge_unread (
    organization_id bigint NOT NULL CONSTRAINT cd_forge_unread_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    version         integer NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, application_id),
    CONSTRAINT cd_forge_unread_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_forge_unread_version_counts CHECK (version > 0)
);
COMMENT ON TABLE cd_forge_unread IS 'Applications whose newest pipeline, of that version, is not in cd_forge_places yet. A trigger notes them, whatever release saves a pipeline.';
CREATE TRIGGER cd_forge_unread_touch BEFORE UPDATE ON cd_forge_unread FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_note_unread_pipeline() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO cd_forge_unread (organization_id, application_id, version) VALUES (NEW.organization_id, NEW.application_id, NEW.version)
    ON CONFLICT (organization_id, application_id) DO UPDATE SET version = GREATEST(cd_forge_unread.version, EXCLUDED.version);
    RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_note_unread_pipeline() IS 'Has what a pipeline says of repositories read.';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_unread_pipelines() RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    -- From organization to organization along the index, as cd_organizations_with_due_forge.
    RETURN QUERY WITH RECURSIVE unread AS (
        (SELECT u.organization_id FROM cd_forge_unread u ORDER BY u.organization_id LIMIT 1)
        UNION ALL
        SELECT (SELECT u.organization_id FROM cd_forge_unread u WHERE u.organization_id > o.organization_id ORDER BY u.organization_id LIMIT 1)
        FROM unread o WHERE o.organization_id IS NOT NULL
    )
    SELECT o.organization_id FROM unread o WHERE o.organization_id IS NOT NULL;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_unread_pipelines() IS 'The workers are for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_save_forge_places(application bigint, read_version integer, places jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    tenant CONSTANT bigint := current_setting('lockstep.organization')::bigint;
BEGIN
    DELETE FROM cd_forge_unread u WHERE u.organization_id = tenant AND u.application_id = application AND u.version = read_version;
    IF NOT FOUND THEN -- another worker was first, or a later pipeline was saved
        RETURN false;
    END IF;
    DELETE FROM cd_forge_places p WHERE p.organization_id = tenant AND p.application_id = application;
    INSERT INTO cd_forge_places (organization_id, application_id, environment, repository, ssh, target)
    SELECT tenant, application, p.environment, p.repository, p.ssh, p.target
    FROM jsonb_to_recordset(places) AS p (environment text, repository text, ssh boolean, target jsonb);
    RETURN true;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_save_forge_places(bigint, integer, jsonb) IS 'Puts what a pipeline says in the place of what the one before has said.';

ALTER TABLE cd_application_flow_definitions NO FORCE ROW LEVEL SECURITY;
CREATE TRIGGER cd_application_flow_definitions_are_noted AFTER INSERT ON cd_application_flow_definitions
    FOR EACH ROW EXECUTE FUNCTION cd_note_unread_pipeline();
-- What is stored is read in the background.
INSERT INTO cd_forge_unread (organization_id, application_id, version)
SELECT d.organization_id, d.application_id, max(d.version) FROM cd_application_flow_definitions d GROUP BY d.organization_id, d.application_id;
ALTER TABLE cd_application_flow_definitions FORCE ROW LEVEL SECURITY;

-- +goose Down
DROP TRIGGER cd_application_flow_definitions_are_noted ON cd_application_flow_definitions;
DROP FUNCTION cd_save_forge_places(bigint, integer, jsonb);
DROP FUNCTION cd_organizations_with_unread_pipelines();
DROP FUNCTION cd_note_unread_pipeline();
DROP TABLE cd_forge_unread;
DROP TABLE cd_forge_places;
