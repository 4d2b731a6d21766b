-- name: SeveralOrganizations :one
-- Whether this service knows more than one organization, from its workflows, which are never deleted, its flows, and its agents. Each
-- lowest and highest number is read from an index.
SELECT (count(*) > 1)::boolean AS several FROM (
    SELECT min(organization) AS organization FROM execution
    UNION SELECT max(organization) FROM execution
    UNION SELECT min(organization) FROM flow
    UNION SELECT max(organization) FROM flow
    UNION SELECT organization FROM agent_owner
) AS known
WHERE organization IS NOT NULL;
