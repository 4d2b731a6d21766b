-- name: InsertAgent :one
INSERT INTO cd_agents (organization_id, name) VALUES (@organization_id, @name) RETURNING *;

-- name: LockAgent :one
SELECT * FROM cd_agents WHERE organization_id = @organization_id AND id = @id FOR NO KEY UPDATE;

-- name: RevokeAgent :exec
UPDATE cd_agents SET revoked_at = @at::timestamptz WHERE organization_id = @organization_id AND id = @id AND revoked_at IS NULL;

-- name: SetAgentLabels :one
UPDATE cd_agents SET labels = @labels WHERE organization_id = @organization_id AND id = @id RETURNING *;

-- name: LabelledAgents :many
-- Those that may be targets of fleets.
SELECT id, name, labels FROM cd_agents WHERE organization_id = @organization_id AND revoked_at IS NULL AND labels <> '{}' ORDER BY id;

-- name: ListAgents :many
SELECT * FROM cd_agents
WHERE organization_id = @organization_id AND id > @above AND id < @below
  AND name > @above_name AND (@below_name::text = '' OR name < @below_name::text) AND (revoked_at IS NULL OR @with_revoked::boolean)
ORDER BY CASE WHEN @by_name::boolean AND NOT @falling::boolean THEN name END, CASE WHEN @by_name::boolean AND @falling::boolean THEN name END DESC,
         CASE WHEN NOT @by_name::boolean AND NOT @falling::boolean THEN id END, CASE WHEN NOT @by_name::boolean AND @falling::boolean THEN id END DESC
LIMIT @at_most;

-- name: CountAgents :one
SELECT count(*) FROM cd_agents
WHERE organization_id = @organization_id AND (revoked_at IS NULL OR @with_revoked::boolean);

-- name: AgentsByID :many
SELECT * FROM cd_agents WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: AgentByName :one
SELECT * FROM cd_agents WHERE organization_id = @organization_id AND name = @name AND revoked_at IS NULL;

-- name: InsertAgentKey :one
INSERT INTO cd_agent_keys (organization_id, agent_id, public_key) VALUES (@organization_id, @agent_id, @public_key) RETURNING *;

-- name: AgentKeysByID :many
SELECT * FROM cd_agent_keys WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: AgentKeysByAgent :many
-- The latest twenty of each: older ones have ended long ago.
SELECT sqlc.embed(v)
FROM unnest(@ids::bigint[]) AS parent(id)
CROSS JOIN LATERAL (SELECT n.id FROM cd_agent_keys n
    WHERE n.organization_id = @organization_id AND n.agent_id = parent.id ORDER BY n.id DESC LIMIT 20) page
JOIN cd_agent_keys v ON v.organization_id = @organization_id AND v.id = page.id
ORDER BY v.agent_id, v.id DESC;

-- name: ExpireAgentKeys :exec
-- Those that were good until now are replaced.
UPDATE cd_agent_keys SET expires_at = @at::timestamptz
WHERE organization_id = @organization_id AND agent_id = @agent_id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > @at);

-- name: RevokeAgentKey :exec
UPDATE cd_agent_keys SET revoked_at = @at::timestamptz WHERE organization_id = @organization_id AND id = @id AND revoked_at IS NULL;

-- name: SeeAgentKeys :exec
-- To the minute.
UPDATE cd_agent_keys SET seen_at = @at::timestamptz
WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]) AND (seen_at IS NULL OR seen_at < @unless_since::timestamptz);

-- name: AgentOfKey :many
-- Across organizations, on purpose: the key decides which one an agent connects for.
SELECT organization_id::bigint AS organization_id, agent_id::bigint AS agent_id, key_id::bigint AS key_id FROM cd_agent_of_key(@public_key, @at);

-- name: GoodAgentKeys :many
SELECT organization_id::bigint AS organization_id, key_id::bigint AS key_id FROM cd_good_agent_keys(@keys::bigint[], @at);

-- name: AgentOwners :many
-- Across organizations, on purpose: the workflow service has to know whose an agent is before a run calls it.
SELECT agent_id::bigint AS agent_id, organization_id::bigint AS organization_id, revoked::boolean AS revoked FROM cd_agent_owners();

-- name: AgentNumbers :many
SELECT id FROM cd_agents WHERE organization_id = @organization_id AND revoked_at IS NULL ORDER BY id;

-- name: NameAgents :exec
INSERT INTO cd_environment_agents (organization_id, environment_id, agent_id)
SELECT @organization_id::bigint, @environment_id::bigint, a.id FROM unnest(@agents::bigint[]) AS a(id)
ON CONFLICT (organization_id, environment_id, agent_id) DO NOTHING;

-- name: EnvironmentsByAgent :many
SELECT n.agent_id, sqlc.embed(e) FROM cd_environment_agents n
JOIN cd_environments e ON e.organization_id = n.organization_id AND e.id = n.environment_id
WHERE n.organization_id = @organization_id AND n.agent_id = ANY(@ids::bigint[]) AND e.archived_at IS NULL
ORDER BY n.agent_id, e.name;

-- name: InsertChange :exec
INSERT INTO cd_changes (organization_id, principal_type, principal_id, principal_name, action, subject_kind, subject_number, subject_name,
    application_id, environment_id, reason, detail, before, after, trace_id)
VALUES (@organization_id, @principal_type, @principal_id, @principal_name, @action, @subject_kind, @subject_number, @subject_name,
    sqlc.narg(application_id), sqlc.narg(environment_id), @reason, @detail, @before, @after, @trace_id);

-- name: LatestChange :many
-- What it led to; one row, or none.
SELECT COALESCE(after, 'null'::jsonb)::jsonb AS after FROM cd_changes
WHERE organization_id = @organization_id AND action = @action AND subject_kind = @subject_kind ORDER BY id DESC LIMIT 1;

-- name: ListAccessChanges :many
-- The part of the journal of changes that is about access.
SELECT id, principal_type, principal_id, action, subject_kind, subject_number, subject_name, detail, created_at FROM cd_changes
WHERE organization_id = @organization_id AND id > @above AND id < @below
  AND subject_kind IN ('member', 'group', 'grant', 'accesstoken', 'agent', 'agentkey', 'organization')
ORDER BY CASE WHEN NOT @falling::boolean THEN id END, CASE WHEN @falling::boolean THEN id END DESC
LIMIT @at_most;

-- name: CountAccessChanges :one
SELECT count(*) FROM cd_changes
WHERE organization_id = @organization_id AND subject_kind IN ('member', 'group', 'grant', 'accesstoken', 'agent', 'agentkey', 'organization');

-- name: EnsureAgent :exec
-- One that the configuration names; the number is given by hand.
INSERT INTO cd_agents (organization_id, id, name) VALUES (@organization_id, @id, @name) ON CONFLICT DO NOTHING;

-- name: EnsureAgentKey :exec
-- A revocation is final.
INSERT INTO cd_agent_keys (organization_id, agent_id, public_key) VALUES (@organization_id, @agent_id, @public_key) ON CONFLICT (organization_id, public_key) DO NOTHING;

-- name: AdvanceAgentIDs :exec
SELECT cd_skip_agent_numbers(@number);
