-- Organizations beside the first one: who operates the installation makes, lists and renames them, and the log of access says so.

-- +goose Up
ALTER TABLE cd_access_changes
    DROP CONSTRAINT cd_access_changes_subject_is_known,
    ADD CONSTRAINT cd_access_changes_subject_is_known CHECK (subject_kind IN ('member', 'group', 'accesstoken', 'agent', 'agentkey', 'organization'));

-- +goose StatementBegin
CREATE FUNCTION cd_all_organizations(above bigint, below bigint, falling boolean, most integer) RETURNS TABLE (id bigint, name text, created_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    IF falling THEN
        RETURN QUERY SELECT o.id, o.name, o.created_at FROM cd_organizations o WHERE o.id > above AND o.id < below ORDER BY o.id DESC LIMIT most;
    ELSE
        RETURN QUERY SELECT o.id, o.name, o.created_at FROM cd_organizations o WHERE o.id > above AND o.id < below ORDER BY o.id LIMIT most;
    END IF;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_all_organizations(bigint, bigint, boolean, integer) IS 'For whoever operates the installation: what there is, and nothing of what is in it.';

-- +goose StatementBegin
CREATE FUNCTION cd_count_organizations() RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE n bigint;
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    SELECT count(*) INTO n FROM cd_organizations;
    PERFORM set_config('lockstep.across', '', true);
    RETURN n;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION cd_count_organizations();
DROP FUNCTION cd_all_organizations(bigint, bigint, boolean, integer);
-- What was logged of organizations stays true, so the narrower rule is for new rows only.
ALTER TABLE cd_access_changes
    DROP CONSTRAINT cd_access_changes_subject_is_known,
    ADD CONSTRAINT cd_access_changes_subject_is_known CHECK (subject_kind IN ('member', 'group', 'accesstoken', 'agent', 'agentkey')) NOT VALID;
