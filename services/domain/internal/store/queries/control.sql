-- name: SetChangeControl :exec
INSERT INTO cd_environment_protections (organization_id, environment_id, direct_changes, change_control) VALUES (@organization_id, @environment_id, false, @change_control)
ON CONFLICT (organization_id, environment_id) DO UPDATE SET change_control = excluded.change_control;

-- name: ControlledEnvironments :many
SELECT v.* FROM cd_environments v
WHERE v.organization_id = @organization_id AND v.id IN (
    SELECT p.environment_id FROM cd_environment_protections p WHERE p.organization_id = @organization_id AND p.change_control)
ORDER BY v.id;

-- name: EnvironmentsConcerned :many
-- Of those under change control: where an application goes, what shares an agent with another environment, and what a group may approve.
SELECT p.environment_id FROM cd_environment_protections p
WHERE p.organization_id = @organization_id AND p.change_control AND (
    @application_id::bigint <> 0 AND EXISTS (SELECT FROM cd_application_environments ae
        WHERE ae.organization_id = p.organization_id AND ae.environment_id = p.environment_id AND ae.application_id = @application_id AND ae.current)
    OR @sharing::bigint <> 0 AND EXISTS (SELECT FROM cd_environment_agents mine
        JOIN cd_environment_agents other ON other.organization_id = mine.organization_id AND other.agent_id = mine.agent_id
        WHERE mine.organization_id = p.organization_id AND mine.environment_id = @sharing AND other.environment_id = p.environment_id)
    OR @approver_group::text <> '' AND (
        EXISTS (SELECT FROM cd_environment_approvals a
            WHERE a.organization_id = p.organization_id AND a.environment_id = p.environment_id AND a.asks AND a.approver_group = @approver_group)
        OR EXISTS (SELECT FROM cd_application_environments ae
            JOIN LATERAL (SELECT f.definition FROM cd_application_flow_definitions f
                WHERE f.organization_id = ae.organization_id AND f.application_id = ae.application_id ORDER BY f.version DESC LIMIT 1) latest ON true
            WHERE ae.organization_id = p.organization_id AND ae.environment_id = p.environment_id AND ae.current
              AND jsonb_path_exists(latest.definition::jsonb, '$.**.group ? (@ == $name)', jsonb_build_object('name', @approver_group::text)))))
ORDER BY p.environment_id;

-- name: ExpireProposedChanges :exec
UPDATE cd_proposed_changes SET state = 'expired' WHERE organization_id = @organization_id AND state = 'open' AND expires_at <= now();

-- name: SameProposedChange :many
-- The open proposal of the same person with the same input, if there is one.
SELECT * FROM cd_proposed_changes
WHERE organization_id = @organization_id AND state = 'open' AND proposer_id = @proposer_id AND action = @action AND input = @input::jsonb LIMIT 1;

-- name: CountOpenProposedChanges :one
SELECT count(*) FROM cd_proposed_changes WHERE organization_id = @organization_id AND state = 'open';

-- name: InsertProposedChange :one
INSERT INTO cd_proposed_changes (organization_id, proposer_id, proposer_name, action, subject_kind, subject_number, subject_name, application_id,
    environment_id, environments, reason, detail, input, before, after, expires_at)
VALUES (@organization_id, @proposer_id, @proposer_name, @action, @subject_kind, @subject_number, @subject_name, sqlc.narg('application_id'),
    sqlc.narg('environment_id'), @environments, @reason, @detail, @input, sqlc.narg('before'), sqlc.narg('after'), now() + make_interval(secs => @life_seconds::bigint))
RETURNING *;

-- name: SettleProposedChange :execrows
UPDATE cd_proposed_changes
SET state = @state, decided_at = now(), decider_id = @decider_id::bigint, decider_name = @decider_name, decision = @decision
WHERE organization_id = @organization_id AND id = @id AND state = 'open';

-- name: ProposedChangesByID :many
SELECT * FROM cd_proposed_changes WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: ListProposedChanges :many
SELECT * FROM cd_proposed_changes
WHERE organization_id = @organization_id AND id > @above AND id < @below AND (NOT @open::boolean OR state = 'open' AND expires_at > @at::timestamptz)
ORDER BY CASE WHEN NOT @falling::boolean THEN id END, CASE WHEN @falling::boolean THEN id END DESC
LIMIT @at_most;

-- name: CountProposedChanges :one
SELECT count(*) FROM cd_proposed_changes
WHERE organization_id = @organization_id AND (NOT @open::boolean OR state = 'open' AND expires_at > @at::timestamptz);
