-- name: SaveAgentOwners :many
-- Returns the agents that could not be stored, because they belong to another organization. Existing owners stay.
WITH given AS (
    SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(organizations)::bigint[]) AS organization,
        unnest(sqlc.arg(revoked)::boolean[]) AS revoked
), one AS (
    SELECT given.id, given.organization, bool_or(given.revoked) AS revoked FROM given GROUP BY given.id, given.organization ORDER BY given.id
), kept AS (
    INSERT INTO agent_owner (id, organization, revoked) SELECT one.id, one.organization, one.revoked FROM one
    ON CONFLICT (id) DO UPDATE SET revoked = agent_owner.revoked OR excluded.revoked WHERE agent_owner.organization = excluded.organization
    RETURNING agent_owner.id, agent_owner.organization
)
SELECT one.id FROM one WHERE NOT EXISTS (SELECT 1 FROM kept WHERE kept.id = one.id AND kept.organization = one.organization) ORDER BY one.id;

-- name: AgentOwners :many
SELECT id, organization, revoked FROM agent_owner ORDER BY id;

-- name: Installation :one
SELECT id FROM installation;
