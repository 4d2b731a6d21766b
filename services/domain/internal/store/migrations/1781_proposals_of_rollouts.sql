-- What the engine has reported of the proposals of rollouts, such as pull requests (D55).

-- +goose Up
CREATE TABLE cd_rollout_proposals (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_proposals_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    environment_id  bigint NOT NULL,
    repository      text NOT NULL CONSTRAINT cd_rollout_proposals_repository_is_bounded CHECK (octet_length(repository) BETWEEN 1 AND 2048),
    branch          text NOT NULL CONSTRAINT cd_rollout_proposals_branch_is_bounded CHECK (octet_length(branch) <= 255),
    number          bigint NOT NULL CONSTRAINT cd_rollout_proposals_number_counts CHECK (number >= 0),
    head            text NOT NULL,
    state           text NOT NULL CONSTRAINT cd_rollout_proposals_state_is_known CHECK (state IN ('open', 'merged', 'closed', 'withdrawn')),
    ended_head      text NOT NULL,
    ended_by        text NOT NULL CONSTRAINT cd_rollout_proposals_name_is_bounded CHECK (octet_length(ended_by) <= 255),
    ended_by_id     bigint NOT NULL CONSTRAINT cd_rollout_proposals_user_counts CHECK (ended_by_id >= 0),
    reported_at     timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_rollout_proposals_one_per_environment UNIQUE (organization_id, rollout_id, environment_id),
    CONSTRAINT cd_rollout_proposals_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_proposals_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id)
);
CREATE INDEX cd_rollout_proposals_by_environment ON cd_rollout_proposals (organization_id, environment_id);
CREATE TRIGGER cd_rollout_proposals_touch BEFORE UPDATE ON cd_rollout_proposals FOR EACH ROW EXECUTE FUNCTION cd_touch();
COMMENT ON TABLE cd_rollout_proposals IS 'One for each environment of a rollout whose driver proposes, kept as long as the rollout.';
COMMENT ON COLUMN cd_rollout_proposals.branch IS 'The branch to merge into; empty for one that was withdrawn before its answer came.';
COMMENT ON COLUMN cd_rollout_proposals.number IS 'That of the pull request; 0 for a branch alone.';
COMMENT ON COLUMN cd_rollout_proposals.head IS 'The commit that was proposed last; empty if none was reported.';
COMMENT ON COLUMN cd_rollout_proposals.ended_head IS 'The last commit of what was merged or closed; empty before.';
COMMENT ON COLUMN cd_rollout_proposals.ended_by IS 'Who has merged or closed it, as the forge calls them, and ended_by_id their number there; empty and 0 where it does not say.';

-- +goose Down
DROP TABLE cd_rollout_proposals;
