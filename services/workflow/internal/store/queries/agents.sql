-- name: SaveAgentOwners :many
-- Answers the agents that it could not keep, because another organization has them. Nothing that was said before is taken back.
WITH said AS (
    SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(revoked)::boolean[]) AS revoked
), one AS (
    SELECT said.id, said.organization, bool_or(said.revoked) AS revoked FROM said GROUP BY said.id, said.organization ORDER BY said.id
), kept AS (
    INSERT INTO agent_owner (id, organization, revoked) SELECT one.id, one.organization, one.revoked FROM one
    ON CONFLICT (id) DO UPDATE SET revoked = agent_owner.revoked OR excluded.revoked WHERE agent_owner.organization = excluded.organization
    RETURNING agent_owner.id, agent_owner.organization
)
SELECT one.id FROM one WHERE NOT EXISTS (SELECT 1 FROM kept WHERE kept.id = one.id AND kept.organization = one.organization) ORDER BY one.id;

-- name: AgentOwners :many
SELECT id, organization, revoked FROM agent_owner ORDER BY id;
