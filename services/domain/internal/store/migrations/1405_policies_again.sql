-- Policy sets are announced again, and what policies have stopped is evaluated again when a service starts (D51).

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_policy_sets(behind bigint, most integer) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT o.id FROM cd_organizations o
        WHERE o.id > behind AND EXISTS (SELECT FROM cd_policy_sets s WHERE s.organization_id = o.id) ORDER BY o.id LIMIT most;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_policy_sets IS 'There is one worker for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_stopped_by(stopping text) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT DISTINCT s.organization_id FROM cd_passage_stops s WHERE s.kind = stopping;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_stopped_by IS 'The policies of the installation concern all organizations.';

-- +goose Down
DROP FUNCTION cd_organizations_stopped_by;
DROP FUNCTION cd_organizations_with_policy_sets;
