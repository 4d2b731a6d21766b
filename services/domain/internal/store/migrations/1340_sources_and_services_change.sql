-- Sources that are disabled, removed or replaced, services that are retired, and version sets that a person has put together (D57).

-- +goose Up
ALTER TABLE cd_artifact_sources ADD COLUMN disabled_at timestamptz, ADD COLUMN removed_at timestamptz, ADD COLUMN replaced_by bigint,
    ADD CONSTRAINT cd_artifact_sources_replacement FOREIGN KEY (organization_id, service_id, replaced_by)
        REFERENCES cd_artifact_sources (organization_id, service_id, id),
    ADD CONSTRAINT cd_artifact_sources_replaced_is_removed CHECK (replaced_by IS NULL OR removed_at IS NOT NULL AND replaced_by > id);
COMMENT ON COLUMN cd_artifact_sources.disabled_at IS 'Since when it takes no versions and is not polled; version sets keep its last version. Null while it is enabled.';
COMMENT ON COLUMN cd_artifact_sources.removed_at IS 'Since when it is in no new version set; its versions and their history stay. It is never brought back.';
COMMENT ON COLUMN cd_artifact_sources.replaced_by IS 'The source that replaces it: until that one has a version, version sets keep the last version of this one.';

ALTER TABLE cd_services ADD COLUMN retired_at timestamptz;
COMMENT ON COLUMN cd_services.retired_at IS 'Since when it is in no new version set, and no new rollout deploys it; null while it is in service.';

ALTER TABLE cd_version_sets ADD COLUMN curated boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cd_version_sets.curated IS 'Whether a person put it together before its sources had come to it. Its identifier says nothing about how new its versions are.';

CREATE TABLE cd_curated_version_sets (
    organization_id bigint NOT NULL CONSTRAINT cd_curated_version_sets_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    version_set_id  bigint NOT NULL,
    name            text NOT NULL,
    reason          text NOT NULL DEFAULT '',
    from_set_id     bigint,
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL DEFAULT 0,
    principal_name  text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_curated_version_sets_set FOREIGN KEY (organization_id, application_id, version_set_id)
        REFERENCES cd_version_sets (organization_id, application_id, id),
    CONSTRAINT cd_curated_version_sets_from FOREIGN KEY (organization_id, application_id, from_set_id)
        REFERENCES cd_version_sets (organization_id, application_id, id),
    CONSTRAINT cd_curated_version_sets_name_is_bounded CHECK (octet_length(name) <= 200),
    CONSTRAINT cd_curated_version_sets_reason_is_bounded CHECK (octet_length(reason) <= 2000),
    CONSTRAINT cd_curated_version_sets_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system'))
);
CREATE UNIQUE INDEX cd_curated_version_sets_name_is_unique ON cd_curated_version_sets (organization_id, application_id, name) WHERE name <> '';
CREATE INDEX cd_curated_version_sets_by_set ON cd_curated_version_sets (organization_id, version_set_id, id);
COMMENT ON TABLE cd_curated_version_sets IS 'By whom and why version sets were put together. A set of the same versions is the same set, and may have several rows. Append-only; rows are kept with the set.';
COMMENT ON COLUMN cd_curated_version_sets.name IS 'What it is called beside the name of the set; empty for nothing.';
COMMENT ON COLUMN cd_curated_version_sets.from_set_id IS 'The set that it was begun with; null for none.';
CREATE TRIGGER cd_curated_version_sets_are_append_only BEFORE UPDATE OR DELETE ON cd_curated_version_sets FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_curated_version_sets_are_kept BEFORE TRUNCATE ON cd_curated_version_sets EXECUTE FUNCTION cd_refuse();

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_sources_after(behind bigint, most integer)
    RETURNS TABLE(id bigint, organization_id bigint, source_ref text, source_config jsonb)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT s.id, s.organization_id, s.source_ref, s.source_config FROM cd_artifact_sources s
        JOIN cd_services v ON v.organization_id = s.organization_id AND v.id = s.service_id AND v.retired_at IS NULL
        WHERE s.id > behind AND s.disabled_at IS NULL AND s.removed_at IS NULL ORDER BY s.id LIMIT most;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_sources_after(behind bigint, most integer)
    RETURNS TABLE(id bigint, organization_id bigint, source_ref text, source_config jsonb)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT s.id, s.organization_id, s.source_ref, s.source_config FROM cd_artifact_sources s WHERE s.id > behind ORDER BY s.id LIMIT most;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
DROP TABLE cd_curated_version_sets;
ALTER TABLE cd_version_sets DROP COLUMN curated;
ALTER TABLE cd_services DROP COLUMN retired_at;
ALTER TABLE cd_artifact_sources DROP CONSTRAINT cd_artifact_sources_replacement, DROP CONSTRAINT cd_artifact_sources_replaced_is_removed,
    DROP COLUMN disabled_at, DROP COLUMN removed_at, DROP COLUMN replaced_by;
