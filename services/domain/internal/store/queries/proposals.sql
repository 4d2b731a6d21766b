-- name: RolloutProposal :one
SELECT * FROM cd_rollout_proposals
WHERE organization_id = @organization_id AND rollout_id = @rollout_id AND environment_id = @environment_id;

-- name: SaveRolloutProposal :exec
INSERT INTO cd_rollout_proposals
    (organization_id, rollout_id, environment_id, repository, branch, number, head, state, ended_head, ended_branch, ended_by, ended_by_id, unshown, reported_at)
VALUES (@organization_id, @rollout_id, @environment_id, @repository, @branch, @number, @head, @state, @ended_head, @ended_branch, @ended_by, @ended_by_id, @unshown, @reported_at)
ON CONFLICT (organization_id, rollout_id, environment_id) DO UPDATE
SET repository = excluded.repository, branch = excluded.branch, number = excluded.number, head = excluded.head, state = excluded.state,
    ended_head = excluded.ended_head, ended_branch = excluded.ended_branch, ended_by = excluded.ended_by, ended_by_id = excluded.ended_by_id,
    unshown = excluded.unshown, reported_at = excluded.reported_at, answered_head = '', answer = '';

-- name: AnswerRolloutProposal :exec
UPDATE cd_rollout_proposals SET answered_head = @answered_head, answer = @answer
WHERE organization_id = @organization_id AND rollout_id = @rollout_id AND environment_id = @environment_id;

-- name: GateAnsweredBefore :one
SELECT EXISTS (
    SELECT FROM cd_rollout_transitions
    WHERE organization_id = @organization_id AND rollout_id = @rollout_id AND gate_id = @gate_id AND id < @request_id
      AND event IN ('approve', 'reject', 'expire', 'break_glass', 'pass_gate')
);
