-- A check run and a status of one name are reported apart from each other (D48).

-- +goose Up
ALTER TABLE cd_forge_reports ADD COLUMN kind text NOT NULL DEFAULT '' CONSTRAINT cd_forge_reports_kind_is_known CHECK (kind IN ('', 'status', 'run'));
COMMENT ON COLUMN cd_forge_reports.kind IS 'Status, or run for a check run or a job, of which a later one has a higher sequence; empty if the event did not say it.';
ALTER TABLE cd_forge_reports DROP CONSTRAINT cd_forge_reports_one_of_a_context;
ALTER TABLE cd_forge_reports ADD CONSTRAINT cd_forge_reports_one_of_a_context UNIQUE (organization_id, commit_sha, repository, context, kind, hook_id);
COMMENT ON TABLE cd_forge_reports IS 'The latest status of each context and kind of a commit that a hook received. Rows that do not count end 90 days after their last change.';

-- +goose Down
-- Of several kinds the one that was reported last stays.
ALTER TABLE cd_forge_reports NO FORCE ROW LEVEL SECURITY;
DELETE FROM cd_forge_reports r USING cd_forge_reports o
WHERE o.organization_id = r.organization_id AND o.commit_sha = r.commit_sha AND o.repository = r.repository AND o.context = r.context AND o.hook_id = r.hook_id
    AND (o.observed_at, o.sequence, o.id) > (r.observed_at, r.sequence, r.id);
ALTER TABLE cd_forge_reports FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_forge_reports DROP CONSTRAINT cd_forge_reports_one_of_a_context;
ALTER TABLE cd_forge_reports ADD CONSTRAINT cd_forge_reports_one_of_a_context UNIQUE (organization_id, commit_sha, repository, context, hook_id);
COMMENT ON TABLE cd_forge_reports IS 'The latest status of each context of a commit that a hook received. Rows that do not count end 90 days after their last change.';
ALTER TABLE cd_forge_reports DROP COLUMN kind;
