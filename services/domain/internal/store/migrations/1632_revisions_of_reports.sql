-- Which commit a version was built from is found by index (D48): a status may name the commit.

-- +goose Up
ALTER TABLE cd_version_reports ADD COLUMN revision text GENERATED ALWAYS AS (
    CASE WHEN jsonb_typeof(report -> 'sources') = 'array' AND report -> 'sources' -> 1 IS NULL AND length(report -> 'sources' -> 0 ->> 'revision') <= 64
        THEN report -> 'sources' -> 0 ->> 'revision' END
) STORED;
COMMENT ON COLUMN cd_version_reports.revision IS 'The commit that the version was built from; null where evidence states none, or several sources.';
CREATE INDEX cd_version_reports_by_revision ON cd_version_reports (organization_id, revision) WHERE revision IS NOT NULL;

-- +goose Down
DROP INDEX cd_version_reports_by_revision;
ALTER TABLE cd_version_reports DROP COLUMN revision;
