-- Settled rows are archived before they are deleted (D65).

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_settled_due(about text) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    own  CONSTANT bigint := NULLIF(current_setting('lockstep.organization', true), '')::bigint;
    days integer;
BEGIN
    PERFORM FROM cd_legal_holds h WHERE h.organization_id = own AND h.in_force;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    SELECT r.keep_days INTO days FROM cd_retention_rules r WHERE r.organization_id = own AND r.kind = about;
    IF NOT FOUND AND about = 'tried_calls' THEN
        days := 30;
    END IF;
    RETURN now() - make_interval(days => NULLIF(days, 0));
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_settled_due IS 'Before when rows of a kind may be deleted; null for never: without a rule, and while a legal hold is in force.';

-- +goose StatementBegin
CREATE FUNCTION cd_settled_rows(about text, at_most integer) RETURNS TABLE (id bigint, content text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
DECLARE
    own CONSTANT bigint := NULLIF(current_setting('lockstep.organization', true), '')::bigint;
    ids CONSTANT bigint[] := ARRAY(SELECT cd_settled(about, cd_settled_due(about), at_most));
BEGIN
    CASE about
    WHEN 'handoffs' THEN
        RETURN QUERY SELECT r.id, to_jsonb(r)::text FROM cd_handoffs r WHERE r.organization_id = own AND r.id = ANY (ids) ORDER BY r.id;
    WHEN 'closings' THEN
        RETURN QUERY SELECT r.id, to_jsonb(r)::text FROM cd_rollout_closings r WHERE r.organization_id = own AND r.id = ANY (ids) ORDER BY r.id;
    WHEN 'tried_calls' THEN
        RETURN QUERY SELECT r.id, to_jsonb(r)::text FROM cd_call_requests r WHERE r.organization_id = own AND r.id = ANY (ids) ORDER BY r.id;
    END CASE;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_settled_rows IS 'The oldest rows of a kind that the organization''s rule does not keep, as JSON, for the archive; none while a legal hold is in force.';

-- +goose StatementBegin
CREATE FUNCTION cd_delete_settled_rows(about text, archived bigint[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    own CONSTANT bigint := NULLIF(current_setting('lockstep.organization', true), '')::bigint;
    -- Again: a rule may have been changed, a hold begun, or a row come into use since the rows were read.
    ids CONSTANT bigint[] := ARRAY(SELECT s FROM cd_settled(about, cd_settled_due(about), cardinality(archived)) s WHERE s = ANY (archived));
BEGIN
    CASE about
    WHEN 'handoffs' THEN DELETE FROM cd_handoffs WHERE organization_id = own AND id = ANY (ids);
    WHEN 'closings' THEN DELETE FROM cd_rollout_closings WHERE organization_id = own AND id = ANY (ids);
    WHEN 'tried_calls' THEN DELETE FROM cd_call_requests WHERE organization_id = own AND id = ANY (ids);
    END CASE;
    RETURN cardinality(ids);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_delete_settled_rows IS 'Deletes those of some rows of a kind that the organization''s rule still does not keep, and answers how many.';

-- +goose Down
DROP FUNCTION cd_delete_settled_rows;
DROP FUNCTION cd_settled_rows;
DROP FUNCTION cd_settled_due;
