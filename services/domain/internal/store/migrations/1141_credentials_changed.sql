-- Credentials that have changed of late are announced more often (D56).

-- +goose Up
CREATE INDEX cd_credentials_by_change ON cd_credentials (changed_at);

-- +goose StatementBegin
CREATE FUNCTION cd_credentials_changed(since timestamptz, behind bigint, most integer) RETURNS TABLE (id bigint, organization_id bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT c.id, c.organization_id FROM cd_credentials c WHERE c.changed_at >= since AND c.id > behind ORDER BY c.id LIMIT most;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_credentials_changed(timestamptz, bigint, integer) IS 'There is one worker for all organizations.';

-- +goose Down
DROP FUNCTION cd_credentials_changed(timestamptz, bigint, integer);
DROP INDEX cd_credentials_by_change;
