-- The registry service refuses deliveries to hooks that were removed (D48).

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_forge_hooks_after(behind bigint, most integer)
    RETURNS TABLE(id bigint, organization_id bigint, key text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT h.id, h.organization_id, h.key FROM cd_forge_hooks h WHERE h.id > behind AND h.removed_at IS NULL ORDER BY h.id LIMIT most;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forge_hooks_after IS 'One service receives the deliveries to the hooks of all organizations; it learns nothing else about them.';
CREATE INDEX cd_forge_hooks_by_id ON cd_forge_hooks (id) WHERE removed_at IS NULL;

-- +goose Down
DROP INDEX cd_forge_hooks_by_id;
DROP FUNCTION cd_forge_hooks_after;
