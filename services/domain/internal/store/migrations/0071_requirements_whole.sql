-- A rule with several requirements keeps all of them in one column. A replica that does not know it, during an upgrade, read the first one
-- alone and could open a passage too early (D46).

-- +goose Up
COMMENT ON COLUMN cd_rollout_gates.also IS 'All that has to be met where that is several requirements, as a list of {group, quorum}; without a group it counts people. approver_group is (several) then, a group that nobody is in; rows of an earlier release have the first requirement there and in quorum. Null for one requirement.';

-- +goose Down
COMMENT ON COLUMN cd_rollout_gates.also IS 'What else has to be met, as a list of {group, quorum}; without a group it counts people. Null if nothing else.';
