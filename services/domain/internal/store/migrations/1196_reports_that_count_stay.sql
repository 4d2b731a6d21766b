-- What forges have reported of commits that version sets come from stays (D48): otherwise a check would wait again once it is old.

-- +goose Up
ALTER TABLE cd_forge_reports ADD COLUMN counted boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cd_forge_reports.counted IS 'Whether a version set that was rolled out comes from the commit: then the row stays.';
COMMENT ON TABLE cd_forge_reports IS 'The latest status of each context of a commit that a hook received. Rows that do not count end 90 days after their last change.';
DROP TRIGGER cd_forge_reports_touch ON cd_forge_reports;
CREATE TRIGGER cd_forge_reports_touch BEFORE UPDATE OF phase, description, link, observed_at, sequence ON cd_forge_reports
    FOR EACH ROW EXECUTE FUNCTION cd_touch();
COMMENT ON TRIGGER cd_forge_reports_touch ON cd_forge_reports IS 'That a row counts is no report: the list of hooks shows when each has last reported.';
UPDATE cd_forge_reports r SET counted = true
WHERE EXISTS (SELECT FROM cd_forge_commits c WHERE c.organization_id = r.organization_id AND c.commit_sha = r.commit_sha);
DROP INDEX cd_forge_reports_by_time;
CREATE INDEX cd_forge_reports_by_time ON cd_forge_reports (organization_id, updated_at) WHERE NOT counted;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_forge_reports(before timestamptz, most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT r.organization_id, r.id FROM cd_forge_reports r
        WHERE r.organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND r.updated_at < before AND NOT r.counted
        ORDER BY r.updated_at LIMIT most
    ), gone AS (
        DELETE FROM cd_forge_reports r USING old WHERE r.organization_id = old.organization_id AND r.id = old.id AND NOT r.counted RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_forge_reports(timestamptz, integer) IS 'What counts for a check is kept.';

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_forge_reports(before timestamptz, most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT r.organization_id, r.id FROM cd_forge_reports r
        WHERE r.organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND r.updated_at < before ORDER BY r.updated_at LIMIT most
    ), gone AS (
        DELETE FROM cd_forge_reports r USING old WHERE r.organization_id = old.organization_id AND r.id = old.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_forge_reports(timestamptz, integer) IS 'What counted for a check is recorded as a status of the check.';
DROP INDEX cd_forge_reports_by_time;
CREATE INDEX cd_forge_reports_by_time ON cd_forge_reports (organization_id, updated_at);
DROP TRIGGER cd_forge_reports_touch ON cd_forge_reports;
CREATE TRIGGER cd_forge_reports_touch BEFORE UPDATE ON cd_forge_reports FOR EACH ROW EXECUTE FUNCTION cd_touch();
COMMENT ON TABLE cd_forge_reports IS 'The latest status of each context of a commit that a hook received. Rows end 90 days after their last change.';
ALTER TABLE cd_forge_reports DROP COLUMN counted;
