-- Where versions come from (D52): what verified signatures and attestations state about them, when they are looked up next, and what they
-- consist of.

-- +goose Up
CREATE TABLE cd_version_lookups (
    organization_id bigint NOT NULL,
    version_id      bigint NOT NULL,
    id              bigint GENERATED ALWAYS AS IDENTITY,
    due_at          timestamptz,
    looked_at       timestamptz,
    failures        integer NOT NULL DEFAULT 0 CONSTRAINT cd_version_lookups_failures_count CHECK (failures >= 0),
    problem         text NOT NULL DEFAULT '' CONSTRAINT cd_version_lookups_problem_is_bounded CHECK (octet_length(problem) <= 1000),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, version_id),
    CONSTRAINT cd_version_lookups_version FOREIGN KEY (organization_id, version_id) REFERENCES cd_versions (organization_id, id)
);
COMMENT ON TABLE cd_version_lookups IS 'When the signatures and attestations of versions that are images are looked up next. A row for each version; rows are kept with it.';
COMMENT ON COLUMN cd_version_lookups.due_at IS 'When it is looked up next, or when the worker that has claimed it has to have answered; null: on request only.';
COMMENT ON COLUMN cd_version_lookups.looked_at IS 'When the last lookup succeeded; null before the first.';
COMMENT ON COLUMN cd_version_lookups.failures IS 'How many lookups have failed since.';
COMMENT ON COLUMN cd_version_lookups.problem IS 'Why the last one failed; empty if it succeeded.';
CREATE INDEX cd_version_lookups_due ON cd_version_lookups (organization_id, due_at) WHERE due_at IS NOT NULL;
CREATE TRIGGER cd_version_lookups_touch BEFORE UPDATE ON cd_version_lookups FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_version_reports (
    organization_id bigint NOT NULL,
    id              bigint GENERATED ALWAYS AS IDENTITY,
    version_id      bigint NOT NULL,
    report          jsonb NOT NULL CONSTRAINT cd_version_reports_report_is_bounded CHECK (length(report::text) <= 1048576),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_version_reports_version FOREIGN KEY (organization_id, version_id) REFERENCES cd_versions (organization_id, id)
);
COMMENT ON TABLE cd_version_reports IS 'What verified evidence states about versions; the latest of a version counts. One that repeats the one before it is not added. Append-only, as the evidence of decisions; rows are kept with the version, and grow with the history.';
COMMENT ON COLUMN cd_version_reports.report IS 'Facts and evidence, as package provenance writes them, without the components.';
CREATE INDEX cd_version_reports_by_version ON cd_version_reports (organization_id, version_id, id DESC);
CREATE TRIGGER cd_version_reports_are_append_only BEFORE UPDATE OR DELETE ON cd_version_reports FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_version_reports_are_kept BEFORE TRUNCATE ON cd_version_reports EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_version_components (
    organization_id bigint NOT NULL,
    version_id      bigint NOT NULL,
    ordinal         integer NOT NULL CONSTRAINT cd_version_components_ordinal_counts CHECK (ordinal BETWEEN 1 AND 5000),
    name            text NOT NULL CONSTRAINT cd_version_components_name_is_bounded CHECK (octet_length(name) BETWEEN 1 AND 500),
    version         text NOT NULL CONSTRAINT cd_version_components_version_is_bounded CHECK (octet_length(version) <= 500),
    purl            text NOT NULL CONSTRAINT cd_version_components_purl_is_bounded CHECK (octet_length(purl) <= 500),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, version_id, ordinal),
    CONSTRAINT cd_version_components_found FOREIGN KEY (organization_id, version_id) REFERENCES cd_versions (organization_id, id)
);
COMMENT ON TABLE cd_version_components IS 'What versions consist of, by their present SBOM: an index of the latest report, replaced with it. Rows end with the version.';
CREATE INDEX cd_version_components_by_name ON cd_version_components (organization_id, name, version_id);

CREATE INDEX cd_versions_by_digest ON cd_versions (organization_id, digest);
CREATE INDEX cd_cells_by_live ON cd_cells (organization_id, live_version_set_id) WHERE live_version_set_id IS NOT NULL;

-- Versions of the last 30 days are looked up within an hour, so that an upgrade asks no registry everything at once.
INSERT INTO cd_version_lookups (organization_id, version_id, due_at)
SELECT organization_id, id, CASE WHEN created_at > now() - interval '30 days' THEN now() + random() * interval '1 hour' END
FROM cd_versions WHERE reference NOT LIKE 'git:%';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_lookups(at timestamptz) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_version_lookups WHERE due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_lookups(timestamptz) IS 'There is one worker for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_components(of_version bigint) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (DELETE FROM cd_version_components WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND version_id = of_version RETURNING 1) SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_components(bigint) IS 'Components are an index of the latest report, which is the record.';

-- +goose Down
DROP FUNCTION cd_forget_components(bigint);
DROP FUNCTION cd_organizations_with_due_lookups(timestamptz);
DROP INDEX cd_cells_by_live;
DROP INDEX cd_versions_by_digest;
DROP TABLE cd_version_components;
DROP TABLE cd_version_reports;
DROP TABLE cd_version_lookups;
