-- The newest version of a source is what its selection says: the highest tag, or what a tag names now, and not what came last. So what has
-- been published under which tag is kept, with its place in the order of the selection. And the newest set of an application is named: it
-- need not be the last one made, since the same versions are one set (R9) and a tag may move back.
--
-- The place in the order is worked out by the service, which knows the selections: what a migration or an older release leaves has none
-- yet, and gets it within seconds of the start, with the newest set of each application concerned. The tags of versions from before are
-- those in their names; that a tag has moved back to one of them is not known.

-- +goose Up
CREATE TABLE cd_publications (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id    bigint NOT NULL CONSTRAINT cd_publications_organization REFERENCES cd_organizations (id),
    artifact_source_id bigint NOT NULL,
    version_id         bigint NOT NULL,
    tag                text NOT NULL DEFAULT '',
    rank               text COLLATE "C",
    published_at       timestamptz NOT NULL,
    told_at            timestamptz NOT NULL,
    arrival            bigint NOT NULL,
    taken              boolean NOT NULL DEFAULT true,
    digest_seen        boolean,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_publications_version FOREIGN KEY (organization_id, artifact_source_id, version_id) REFERENCES cd_versions (organization_id, artifact_source_id, id),
    CONSTRAINT cd_publications_are_unique UNIQUE (organization_id, version_id, tag)
);
COMMENT ON TABLE cd_publications IS 'Under which tags the versions of a source were published, and when: what the newest version is chosen from.';
COMMENT ON COLUMN cd_publications.tag IS 'The tag; empty for what was published without one.';
COMMENT ON COLUMN cd_publications.rank IS 'The place of the tag in the order of the source''s selection; of equal rank, the later publication is the newer one. NULL: not worked out yet.';
COMMENT ON COLUMN cd_publications.published_at IS 'The last publication of the version under the tag; the first, where the selection goes by when an artifact was made.';
COMMENT ON COLUMN cd_publications.told_at IS 'When the event of that publication was made: the order of publications of the same instant.';
COMMENT ON COLUMN cd_publications.arrival IS 'The order of arrival, for publications of the same instant that were told at the same instant.';
COMMENT ON COLUMN cd_publications.taken IS 'Whether the source, as it is configured now, takes the tag.';
COMMENT ON COLUMN cd_publications.digest_seen IS 'Whether the digest of the version was seen at its registry, the same in all rows of a version; NULL where that was never said.';
CREATE SEQUENCE cd_publications_arrivals OWNED BY cd_publications.arrival;
ALTER TABLE cd_publications ALTER COLUMN arrival SET DEFAULT nextval('cd_publications_arrivals');
CREATE INDEX cd_publications_by_rank ON cd_publications (organization_id, artifact_source_id, rank DESC, published_at DESC, told_at DESC, arrival DESC)
    WHERE rank IS NOT NULL AND taken AND digest_seen IS NOT FALSE;
CREATE INDEX cd_publications_unranked ON cd_publications (organization_id, artifact_source_id) WHERE rank IS NULL;

CREATE TABLE cd_newest_version_sets (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_newest_version_sets_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    version_set_id  bigint NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_newest_version_sets_set FOREIGN KEY (organization_id, application_id, version_set_id) REFERENCES cd_version_sets (organization_id, application_id, id),
    CONSTRAINT cd_newest_version_sets_one_per_application UNIQUE (organization_id, application_id)
);
COMMENT ON TABLE cd_newest_version_sets IS 'The set of the newest version of every source of an application. Without a row it is the last one made.';

-- A version of the release before gets its row here, without a place in the order. This one adds the row itself, and says so.
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
CREATE FUNCTION cd_record_publication() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF COALESCE(current_setting('lockstep.publications', true), '') <> 'recorded' THEN
        INSERT INTO cd_publications (organization_id, artifact_source_id, version_id, tag, published_at, told_at)
        VALUES (NEW.organization_id, NEW.artifact_source_id, NEW.id, cd_tag_of(NEW.name, NEW.digest), NEW.published_at, NEW.created_at);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER cd_versions_record_publication AFTER INSERT ON cd_versions FOR EACH ROW EXECUTE FUNCTION cd_record_publication();

-- +goose StatementBegin
DO $$
DECLARE
    o bigint;
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    FOR o IN SELECT id FROM cd_organizations LOOP
        PERFORM set_config('lockstep.organization', o::text, true);
        INSERT INTO cd_publications (organization_id, artifact_source_id, version_id, tag, published_at, told_at)
        SELECT v.organization_id, v.artifact_source_id, v.id, cd_tag_of(v.name, v.digest), v.published_at, v.created_at
        FROM cd_versions v WHERE v.organization_id = o ORDER BY v.id;
    END LOOP;
    PERFORM set_config('lockstep.organization', '', true), set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_unranked_publications() RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT DISTINCT organization_id FROM cd_publications WHERE rank IS NULL ORDER BY organization_id;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION cd_organizations_with_unranked_publications();
DROP TRIGGER cd_versions_record_publication ON cd_versions;
DROP FUNCTION cd_record_publication();
DROP FUNCTION cd_tag_of(text, text);
DROP TABLE cd_newest_version_sets;
DROP TABLE cd_publications;
