-- A status may be about the commit that was proposed for an environment (D48, D55), and counts while that is the one that would be merged.

-- +goose Up
ALTER TABLE cd_check_statuses ADD COLUMN proposed_commit text NOT NULL DEFAULT ''
    CONSTRAINT cd_check_statuses_proposed_commit_is_whole CHECK (proposed_commit ~ '^([0-9a-f]{40}([0-9a-f]{24})?)?$');
COMMENT ON COLUMN cd_check_statuses.proposed_commit IS 'The commit of a proposal that the status is about; empty for one about the version set. It decides nothing once the change is proposed by another commit.';

-- +goose Down
ALTER TABLE cd_check_statuses DROP COLUMN proposed_commit;
