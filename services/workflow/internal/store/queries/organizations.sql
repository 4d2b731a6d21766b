-- name: SeveralOrganizations :one
-- Whether this service knows of more than one organization: by its workflows, which stay, by its flows, or by its agents. Each least and greatest number
-- is read from an index.
SELECT (count(*) > 1)::boolean AS several FROM (
    SELECT min(organization) AS organization FROM execution
    UNION SELECT max(organization) FROM execution
    UNION SELECT min(organization) FROM flow
    UNION SELECT max(organization) FROM flow
    UNION SELECT organization FROM agent_owner
) AS known
WHERE organization IS NOT NULL;
