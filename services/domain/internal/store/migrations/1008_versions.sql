-- Versions of services, what is known about them, and sets of them.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_record_publication() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF COALESCE(current_setting('lockstep.publications', true), '') <> 'recorded' THEN
        INSERT INTO cd_publications (organization_id, artifact_source_id, version_id, tag, published_at, announced_at)
        VALUES (NEW.organization_id, NEW.artifact_source_id, NEW.id, cd_tag_of(NEW.name, NEW.digest), NEW.published_at, NEW.created_at);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE SEQUENCE cd_publications_arrivals;

CREATE TABLE cd_publications (
    id                 bigint GENERATED ALWAYS AS IDENTITY,
    organization_id    bigint NOT NULL CONSTRAINT cd_publications_organization REFERENCES cd_organizations (id),
    artifact_source_id bigint NOT NULL,
    version_id         bigint NOT NULL,
    tag                text NOT NULL DEFAULT '',
    rank               text COLLATE "C",
    published_at       timestamptz NOT NULL,
    announced_at       timestamptz NOT NULL,
    arrival            bigint NOT NULL DEFAULT nextval('cd_publications_arrivals'),
    taken              boolean NOT NULL DEFAULT true,
    digest_seen        boolean,
    alive_at           timestamptz,
    tag_deleted_at     timestamptz,
    image_deleted_at   timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_publications_are_unique UNIQUE (organization_id, version_id, tag)
);
ALTER SEQUENCE cd_publications_arrivals OWNED BY cd_publications.arrival;
COMMENT ON TABLE cd_publications IS 'Under which tags the versions of a source were published, and when: what the newest version is chosen from.';
COMMENT ON COLUMN cd_publications.alive_at IS 'The last instant at which the version was known to be at the registry under the tag, where that is later than published_at.';
COMMENT ON COLUMN cd_publications.arrival IS 'The order of arrival, for publications of the same instant that were announced at the same instant.';
COMMENT ON COLUMN cd_publications.digest_seen IS 'Whether the digest of the version was seen at its registry, the same in all rows of a version; NULL where that was never said.';
COMMENT ON COLUMN cd_publications.image_deleted_at IS 'When the registry last deleted the image, and every tag with it; NULL: never.';
COMMENT ON COLUMN cd_publications.published_at IS 'The last publication of the version under the tag; the first, where the selection goes by when an artifact was made.';
COMMENT ON COLUMN cd_publications.rank IS 'The place of the tag in the order of the source''s selection; of equal rank, the later publication is the newer one. NULL: not worked out yet.';
COMMENT ON COLUMN cd_publications.tag IS 'The tag; empty for what was published without one.';
COMMENT ON COLUMN cd_publications.tag_deleted_at IS 'When the registry last deleted the tag; NULL: never.';
COMMENT ON COLUMN cd_publications.taken IS 'Whether the source, as it is configured now, takes the tag.';
COMMENT ON COLUMN cd_publications.announced_at IS 'When the event of that publication was made: the order of publications of the same instant.';
CREATE INDEX cd_publications_by_rank ON cd_publications (organization_id, artifact_source_id, rank DESC, published_at DESC,
    announced_at DESC, arrival DESC) WHERE rank IS NOT NULL AND taken AND digest_seen IS NOT FALSE;
CREATE INDEX cd_publications_by_tag ON cd_publications (organization_id, artifact_source_id, tag);
CREATE INDEX cd_publications_deleted ON cd_publications (organization_id, version_id)
    WHERE tag_deleted_at IS NOT NULL OR image_deleted_at IS NOT NULL;
CREATE INDEX cd_publications_unranked ON cd_publications (organization_id, artifact_source_id) WHERE rank IS NULL;

CREATE TABLE cd_versions (
    id                 bigint GENERATED ALWAYS AS IDENTITY,
    organization_id    bigint NOT NULL CONSTRAINT cd_versions_organization REFERENCES cd_organizations (id),
    artifact_source_id bigint NOT NULL,
    name               text NOT NULL,
    digest             text NOT NULL,
    reference          text NOT NULL,
    published_at       timestamptz NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_versions_digest_is_unique UNIQUE (organization_id, artifact_source_id, digest),
    CONSTRAINT cd_versions_name_is_unique UNIQUE (organization_id, artifact_source_id, name),
    CONSTRAINT cd_versions_of_source UNIQUE (organization_id, artifact_source_id, id),
    CONSTRAINT cd_versions_artifact_source FOREIGN KEY (organization_id, artifact_source_id)
        REFERENCES cd_artifact_sources (organization_id, id),
    CONSTRAINT cd_versions_digest_is_given CHECK (digest <> ''),
    CONSTRAINT cd_versions_name_is_given CHECK (name <> '')
);
COMMENT ON COLUMN cd_versions.published_at IS 'When the artifact was published, never later than its arrival: what "latest" is decided by, whatever order events come in.';
CREATE INDEX cd_versions_by_age ON cd_versions (organization_id, artifact_source_id, published_at DESC, id DESC);
CREATE INDEX cd_versions_by_digest ON cd_versions (organization_id, digest);
CREATE TRIGGER cd_versions_are_immutable BEFORE UPDATE OR DELETE ON cd_versions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_versions_are_kept BEFORE TRUNCATE ON cd_versions EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_versions_record_publication AFTER INSERT ON cd_versions FOR EACH ROW EXECUTE FUNCTION cd_record_publication();

CREATE TABLE cd_version_components (
    organization_id bigint NOT NULL,
    version_id      bigint NOT NULL,
    ordinal         integer NOT NULL,
    name            text NOT NULL,
    version         text NOT NULL,
    purl            text NOT NULL,
    id              bigint GENERATED ALWAYS AS IDENTITY,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, version_id, ordinal),
    CONSTRAINT cd_version_components_found FOREIGN KEY (organization_id, version_id) REFERENCES cd_versions (organization_id, id),
    CONSTRAINT cd_version_components_name_is_bounded CHECK (octet_length(name) >= 1 AND octet_length(name) <= 500),
    CONSTRAINT cd_version_components_ordinal_counts CHECK (ordinal >= 1 AND ordinal <= 5000),
    CONSTRAINT cd_version_components_purl_is_bounded CHECK (octet_length(purl) <= 500),
    CONSTRAINT cd_version_components_version_is_bounded CHECK (octet_length(version) <= 500)
);
COMMENT ON TABLE cd_version_components IS 'What versions consist of, by their present SBOM: an index of the latest report, replaced with it. Rows end with the version.';
CREATE INDEX cd_version_components_by_name ON cd_version_components (organization_id, name, version_id);

CREATE TABLE cd_version_lookups (
    organization_id bigint NOT NULL,
    version_id      bigint NOT NULL,
    id              bigint GENERATED ALWAYS AS IDENTITY,
    due_at          timestamptz,
    looked_at       timestamptz,
    failures        integer NOT NULL DEFAULT 0,
    problem         text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, version_id),
    CONSTRAINT cd_version_lookups_version FOREIGN KEY (organization_id, version_id) REFERENCES cd_versions (organization_id, id),
    CONSTRAINT cd_version_lookups_failures_count CHECK (failures >= 0),
    CONSTRAINT cd_version_lookups_problem_is_bounded CHECK (octet_length(problem) <= 1000)
);
COMMENT ON TABLE cd_version_lookups IS 'When the signatures and attestations of versions that are images are looked up next. A row for each version; rows are kept with it.';
COMMENT ON COLUMN cd_version_lookups.due_at IS 'When it is looked up next, or when the worker that has claimed it has to have answered; null: on request only.';
COMMENT ON COLUMN cd_version_lookups.failures IS 'How many lookups have failed since.';
COMMENT ON COLUMN cd_version_lookups.looked_at IS 'When the last lookup succeeded; null before the first.';
COMMENT ON COLUMN cd_version_lookups.problem IS 'Why the last one failed; empty if it succeeded.';
CREATE INDEX cd_version_lookups_due ON cd_version_lookups (organization_id, due_at) WHERE due_at IS NOT NULL;
CREATE TRIGGER cd_version_lookups_touch BEFORE UPDATE ON cd_version_lookups FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_version_reports (
    organization_id bigint NOT NULL,
    id              bigint GENERATED ALWAYS AS IDENTITY,
    version_id      bigint NOT NULL,
    report          jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_version_reports_version FOREIGN KEY (organization_id, version_id) REFERENCES cd_versions (organization_id, id),
    CONSTRAINT cd_version_reports_report_is_bounded CHECK (length((report)::text) <= 1048576)
);
COMMENT ON TABLE cd_version_reports IS 'What verified evidence states about versions; the latest of a version counts. One that repeats the one before it is not added. Append-only, as the evidence of decisions; rows are kept with the version, and grow with the history.';
COMMENT ON COLUMN cd_version_reports.report IS 'Facts and evidence, as package provenance writes them, without the components.';
CREATE INDEX cd_version_reports_by_version ON cd_version_reports (organization_id, version_id, id DESC);
CREATE TRIGGER cd_version_reports_are_append_only BEFORE UPDATE OR DELETE ON cd_version_reports FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_version_reports_are_kept BEFORE TRUNCATE ON cd_version_reports EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_version_sets (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_version_sets_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    name            text NOT NULL,
    entries_digest  text NOT NULL,
    entries_count   integer NOT NULL,
    traceparent     text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_version_sets_entries_are_unique UNIQUE (organization_id, application_id, entries_digest),
    CONSTRAINT cd_version_sets_name_is_unique UNIQUE (organization_id, application_id, name),
    CONSTRAINT cd_version_sets_of_application UNIQUE (organization_id, application_id, id),
    CONSTRAINT cd_version_sets_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_version_sets_has_entries CHECK (entries_count > 0),
    CONSTRAINT cd_version_sets_name_is_given CHECK (name <> ''),
    CONSTRAINT cd_version_sets_traceparent_is_given CHECK (traceparent <> '')
);
COMMENT ON COLUMN cd_version_sets.entries_count IS 'How many entries the set was made with; an entry added later is refused at commit.';
COMMENT ON COLUMN cd_version_sets.entries_digest IS 'SHA-256 over the sorted (source, version) pairs: identical sets are one set.';
CREATE TRIGGER cd_version_sets_are_immutable BEFORE UPDATE OR DELETE ON cd_version_sets FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_version_sets_are_kept BEFORE TRUNCATE ON cd_version_sets EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_version_set_entries (
    id                 bigint GENERATED ALWAYS AS IDENTITY,
    organization_id    bigint NOT NULL CONSTRAINT cd_version_set_entries_organization REFERENCES cd_organizations (id),
    version_set_id     bigint NOT NULL,
    version_id         bigint NOT NULL,
    artifact_source_id bigint NOT NULL,
    service_id         bigint NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_version_set_entries_one_version_per_source UNIQUE (organization_id, version_set_id, artifact_source_id),
    CONSTRAINT cd_version_set_entries_source_of_service FOREIGN KEY (organization_id, service_id, artifact_source_id)
        REFERENCES cd_artifact_sources (organization_id, service_id, id),
    CONSTRAINT cd_version_set_entries_version_of_source FOREIGN KEY (organization_id, artifact_source_id, version_id)
        REFERENCES cd_versions (organization_id, artifact_source_id, id),
    CONSTRAINT cd_version_set_entries_version_set FOREIGN KEY (organization_id, version_set_id)
        REFERENCES cd_version_sets (organization_id, id)
);
CREATE INDEX cd_version_set_entries_by_version ON cd_version_set_entries (organization_id, version_id);
CREATE TRIGGER cd_version_set_entries_are_immutable BEFORE UPDATE OR DELETE ON cd_version_set_entries FOR EACH ROW
    EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_version_set_entries_are_kept BEFORE TRUNCATE ON cd_version_set_entries EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_newest_version_sets (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_newest_version_sets_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    version_set_id  bigint NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_newest_version_sets_one_per_application UNIQUE (organization_id, application_id),
    CONSTRAINT cd_newest_version_sets_set FOREIGN KEY (organization_id, application_id, version_set_id)
        REFERENCES cd_version_sets (organization_id, application_id, id)
);
COMMENT ON TABLE cd_newest_version_sets IS 'The set of the newest version of every source of an application. Without a row it is the last one made.';

CREATE TABLE cd_artifact_deletions (
    id                 bigint GENERATED ALWAYS AS IDENTITY,
    organization_id    bigint NOT NULL CONSTRAINT cd_artifact_deletions_organization REFERENCES cd_organizations (id),
    artifact_source_id bigint NOT NULL,
    digest             text NOT NULL DEFAULT '',
    tag                text NOT NULL DEFAULT '',
    deleted_at         timestamptz NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_artifact_deletions_are_unique UNIQUE (organization_id, artifact_source_id, digest, tag),
    CONSTRAINT cd_artifact_deletions_source FOREIGN KEY (organization_id, artifact_source_id)
        REFERENCES cd_artifact_sources (organization_id, id),
    CONSTRAINT cd_artifact_deletions_name_something CHECK (digest <> '' OR tag <> '')
);
COMMENT ON TABLE cd_artifact_deletions IS 'What registries deleted, for publications that arrive later than their deletion; forgotten after 30 days.';
COMMENT ON COLUMN cd_artifact_deletions.deleted_at IS 'When it was deleted last.';
COMMENT ON COLUMN cd_artifact_deletions.digest IS 'The digest; empty where a tag was deleted, whatever it named.';
COMMENT ON COLUMN cd_artifact_deletions.tag IS 'The tag; empty where an image was deleted with all its tags.';
CREATE INDEX cd_artifact_deletions_by_age ON cd_artifact_deletions (organization_id, updated_at);

ALTER TABLE cd_publications ADD CONSTRAINT cd_publications_version FOREIGN KEY (organization_id, artifact_source_id,
    version_id) REFERENCES cd_versions (organization_id, artifact_source_id, id);

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

-- +goose StatementBegin
CREATE FUNCTION cd_tag_of(name text, digest text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN name IN (hex, left(hex, 12), left(hex, 12) || '-' || hex) THEN ''
        WHEN right(name, length(hex) + 1) = '-' || hex THEN left(name, -length(hex) - 1)
        WHEN right(name, 13) = '-' || left(hex, 12) THEN left(name, -13)
        ELSE name END
    FROM (SELECT substr(digest, position(':' in digest) + 1) AS hex) d
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_lookups(at timestamptz) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_version_lookups WHERE due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_lookups IS 'There is one worker for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_unranked_publications() RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT DISTINCT organization_id FROM cd_publications WHERE rank IS NULL ORDER BY organization_id;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION cd_forget_artifact_deletions(before timestamptz, at_most integer) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT organization_id, id FROM cd_artifact_deletions
        WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND updated_at < before ORDER BY updated_at LIMIT at_most
    ), gone AS (DELETE FROM cd_artifact_deletions d USING old WHERE d.organization_id = old.organization_id AND d.id = old.id RETURNING d.id)
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_artifact_deletions IS 'The marks on publications stay; these rows are for what arrives late.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_components(of_version bigint) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (DELETE FROM cd_version_components WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND version_id = of_version RETURNING 1) SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_components IS 'Components are an index of the latest report, which is the record.';

-- +goose Down
DROP FUNCTION cd_forget_components;
DROP FUNCTION cd_forget_artifact_deletions;
DROP FUNCTION cd_organizations_with_unranked_publications;
DROP FUNCTION cd_organizations_with_due_lookups;
DROP FUNCTION cd_tag_of;
DROP TRIGGER cd_version_sets_is_whole ON cd_version_sets;
DROP TRIGGER cd_version_set_entries_is_whole ON cd_version_set_entries;
ALTER TABLE cd_publications DROP CONSTRAINT cd_publications_version;
DROP TABLE cd_artifact_deletions;
DROP TABLE cd_newest_version_sets;
DROP TABLE cd_version_set_entries;
DROP TABLE cd_version_sets;
DROP TABLE cd_version_reports;
DROP TABLE cd_version_lookups;
DROP TABLE cd_version_components;
DROP TABLE cd_versions;
DROP TABLE cd_publications;
DROP FUNCTION cd_record_publication;
DROP FUNCTION cd_version_set_is_whole;
