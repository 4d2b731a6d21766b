-- What looks across organizations says so in its body, no longer in its head: only a superuser may make a function with a setting
-- that PostgreSQL does not know, and on a server that somebody else runs nobody is one. The heads of the migrations before are without
-- it, too, so that any owner gets here; until the bodies below the functions find nothing, and nobody asks them.
-- The setting ends with the function: at an error PostgreSQL takes it back with everything else.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_organizations_with_source(key text) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT DISTINCT organization_id FROM cd_artifact_sources WHERE match_key = key ORDER BY organization_id;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_organizations_with_due_handoffs(at timestamptz) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_handoffs WHERE state = 0 AND due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_organizations_with_due_rollbacks(at timestamptz) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_automatic_rollbacks WHERE state = 0 AND due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_organizations_with_due_gates(at timestamptz) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_gate_expiries WHERE NOT settled AND due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_organizations_with_token(token_digest bytea) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_access_tokens WHERE digest = token_digest;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_organizations_with_due_closings(at timestamptz) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_rollout_closings WHERE NOT settled AND due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_organizations_with_free_queue() RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT q.organization_id FROM cd_queued_rollouts q
    WHERE q.state = 0 AND NOT EXISTS (SELECT FROM cd_rollouts r WHERE r.organization_id = q.organization_id AND r.application_id = q.application_id AND r.state IN (0, 1, 2))
    GROUP BY q.organization_id ORDER BY min(q.requested_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_sources_after(behind bigint, most integer) RETURNS TABLE (id bigint, organization_id bigint, source_ref text, source_config jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT s.id, s.organization_id, s.source_ref, s.source_config FROM cd_artifact_sources s WHERE s.id > behind ORDER BY s.id LIMIT most;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_agent_of_key(key text, at timestamptz) RETURNS TABLE (organization_id bigint, agent_id bigint, key_id bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT k.organization_id, k.agent_id, k.id FROM cd_agent_keys k
    JOIN cd_agents a ON a.organization_id = k.organization_id AND a.id = k.agent_id
    WHERE k.public_key = key AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > at) AND a.revoked_at IS NULL;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_good_agent_keys(keys bigint[], at timestamptz) RETURNS TABLE (organization_id bigint, key_id bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT k.organization_id, k.id FROM cd_agent_keys k
    JOIN cd_agents a ON a.organization_id = k.organization_id AND a.id = k.agent_id
    WHERE k.id = ANY (keys) AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > at) AND a.revoked_at IS NULL;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_agent_owners() RETURNS TABLE (agent_id bigint, organization_id bigint, revoked boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT a.id, a.organization_id, a.revoked_at IS NOT NULL FROM cd_agents a ORDER BY a.id;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose Down
-- The functions of the release before do the same, and answer the same to the same names: there is nothing to take back.
SELECT 1;
