-- A status may be about the commit that was proposed for an environment (D48, D55), and counts while that is the one that would be merged.

-- +goose Up
ALTER TABLE cd_check_statuses ADD COLUMN proposed_commit text NOT NULL DEFAULT ''
    CONSTRAINT cd_check_statuses_proposed_commit_is_whole CHECK (proposed_commit ~ '^([0-9a-f]{40}([0-9a-f]{24})?)?$');
COMMENT ON COLUMN cd_check_statuses.proposed_commit IS 'The commit of a proposal that the status is about; empty for one about the version set. It decides nothing once the change is proposed by another commit.';

-- +goose StatementBegin
CREATE FUNCTION cd_is_proposed(organization bigint, environment bigint, version_set bigint, commit text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM cd_rollout_proposals p
        WHERE p.organization_id = organization AND p.environment_id = environment AND p.head = commit AND p.rollout_id = (
            SELECT r.id FROM cd_rollouts r WHERE r.organization_id = organization AND r.version_set_id = version_set ORDER BY r.id DESC LIMIT 1))
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_is_proposed IS 'Whether a commit is what the newest rollout of a version set has proposed last for an environment.';

-- +goose Down
DROP FUNCTION cd_is_proposed;
ALTER TABLE cd_check_statuses DROP COLUMN proposed_commit;
