-- What registries report as deleted. A version stays; it says that its image, or the last tag that named it, is gone, unless it was published again
-- since. Every column here is the latest instant of its kind, so that the order in which events arrive does not matter.

-- +goose Up
ALTER TABLE cd_publications
    ADD COLUMN alive_at timestamptz,
    ADD COLUMN tag_deleted_at timestamptz,
    ADD COLUMN image_deleted_at timestamptz;
COMMENT ON COLUMN cd_publications.alive_at IS 'The last instant at which the version was known to be at the registry under the tag, where that is later than published_at.';
COMMENT ON COLUMN cd_publications.tag_deleted_at IS 'When the registry last deleted the tag; NULL: never.';
COMMENT ON COLUMN cd_publications.image_deleted_at IS 'When the registry last deleted the image, and every tag with it; NULL: never.';
CREATE INDEX cd_publications_by_tag ON cd_publications (organization_id, artifact_source_id, tag);
CREATE INDEX cd_publications_deleted ON cd_publications (organization_id, version_id) WHERE tag_deleted_at IS NOT NULL OR image_deleted_at IS NOT NULL;

CREATE TABLE cd_artifact_deletions (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id    bigint NOT NULL CONSTRAINT cd_artifact_deletions_organization REFERENCES cd_organizations (id),
    artifact_source_id bigint NOT NULL,
    digest             text NOT NULL DEFAULT '',
    tag                text NOT NULL DEFAULT '',
    deleted_at         timestamptz NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_artifact_deletions_source FOREIGN KEY (organization_id, artifact_source_id) REFERENCES cd_artifact_sources (organization_id, id),
    CONSTRAINT cd_artifact_deletions_are_unique UNIQUE (organization_id, artifact_source_id, digest, tag),
    CONSTRAINT cd_artifact_deletions_name_something CHECK (digest <> '' OR tag <> '')
);
COMMENT ON TABLE cd_artifact_deletions IS 'What registries deleted, for publications that arrive later than their deletion; forgotten after 30 days.';
COMMENT ON COLUMN cd_artifact_deletions.digest IS 'The digest; empty where a tag was deleted, whatever it named.';
COMMENT ON COLUMN cd_artifact_deletions.tag IS 'The tag; empty where an image was deleted with all its tags.';
COMMENT ON COLUMN cd_artifact_deletions.deleted_at IS 'When it was deleted last.';
CREATE INDEX cd_artifact_deletions_by_age ON cd_artifact_deletions (organization_id, updated_at);
-- The role that the service works as deletes nothing of an organization. This runs as the owner, who is behind the walls as well: it forgets those of
-- the organization that the transaction has entered, and no others.
-- +goose StatementBegin
CREATE FUNCTION cd_forget_artifact_deletions(before timestamptz, at_most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT id FROM cd_artifact_deletions
        WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND updated_at < before ORDER BY updated_at LIMIT at_most
    ), gone AS (DELETE FROM cd_artifact_deletions d USING old WHERE d.id = old.id RETURNING d.id)
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_artifact_deletions(timestamptz, integer) IS 'The marks on publications stay; these rows are for what arrives late.';

-- +goose Down
DROP FUNCTION cd_forget_artifact_deletions(timestamptz, integer);
DROP TABLE cd_artifact_deletions;
DROP INDEX cd_publications_deleted;
DROP INDEX cd_publications_by_tag;
ALTER TABLE cd_publications DROP COLUMN image_deleted_at, DROP COLUMN tag_deleted_at, DROP COLUMN alive_at;
