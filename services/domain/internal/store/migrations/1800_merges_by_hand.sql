-- What a merge by hand of a proposal means for the gate of its environment (D55).

-- +goose Up
ALTER TABLE cd_rollout_proposals
    ADD COLUMN ended_branch text NOT NULL DEFAULT '' CONSTRAINT cd_rollout_proposals_ended_branch_is_bounded CHECK (octet_length(ended_branch) <= 255),
    ADD COLUMN answered_head text NOT NULL DEFAULT '',
    ADD COLUMN answer text NOT NULL DEFAULT '' CONSTRAINT cd_rollout_proposals_answer_is_bounded CHECK (octet_length(answer) <= 1000);
COMMENT ON COLUMN cd_rollout_proposals.ended_branch IS 'The branch that it was merged into; empty before, where that was not reported, and for what replicas of an earlier release have written.';
COMMENT ON COLUMN cd_rollout_proposals.answered_head IS 'The ended_head of the merge that was looked at as an answer to the gate, or unknown where that is empty; empty for none.';
COMMENT ON COLUMN cd_rollout_proposals.answer IS 'Why that merge is no approval; empty if it is one, or comes too late to be one.';

-- +goose Down
ALTER TABLE cd_rollout_proposals DROP COLUMN answer, DROP COLUMN answered_head, DROP COLUMN ended_branch;
