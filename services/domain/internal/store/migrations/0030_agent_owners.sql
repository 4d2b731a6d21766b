-- The workflow service is told whose agents are.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_agent_owners() RETURNS TABLE (agent_id bigint, organization_id bigint, revoked boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT a.id, a.organization_id, a.revoked_at IS NOT NULL FROM cd_agents a ORDER BY a.id
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_agent_owners() IS 'The workflow service keeps runs to the agents of their organization, so it has to know those of all.';

-- +goose Down
DROP FUNCTION cd_agent_owners();
