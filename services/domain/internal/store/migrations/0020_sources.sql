-- What the registry service is told of: the sources of all organizations.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_sources_after(behind bigint, most integer) RETURNS TABLE (id bigint, organization_id bigint, source_ref text, source_config jsonb)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT s.id, s.organization_id, s.source_ref, s.source_config FROM cd_artifact_sources s WHERE s.id > behind ORDER BY s.id LIMIT most
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_sources_after(bigint, integer) IS 'One service looks at the sources of all organizations (E62); it is told nothing else of them.';

-- +goose Down
DROP FUNCTION cd_sources_after(bigint, integer);
