-- Calls that only policies which are tried out would not have permitted are kept for a time (D51, D65).

-- +goose Up
ALTER TABLE cd_retention_rules DROP CONSTRAINT cd_retention_rules_kind_is_known;
ALTER TABLE cd_retention_rules ADD CONSTRAINT cd_retention_rules_kind_is_known
    CHECK (kind IN ('requests', 'handoffs', 'closings', 'sign_ins', 'tried_calls'));
COMMENT ON TABLE cd_call_requests IS 'What policies decided about calls of Functions other than to permit them at once: calls that they denied, and approvals that they require, kept as the evidence of what programs did. Those that only policies which are tried out would not have permitted are deleted after a time.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_settled(about text, before timestamptz, at_most integer) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    own CONSTANT bigint := NULLIF(current_setting('lockstep.organization', true), '')::bigint;
BEGIN
    CASE about
    WHEN 'requests' THEN
        RETURN QUERY SELECT r.id FROM cd_requests r WHERE r.organization_id = own AND r.created_at < before ORDER BY r.created_at LIMIT at_most;
    WHEN 'handoffs' THEN -- those of rollouts under way may have to be repeated
        RETURN QUERY SELECT h.id FROM cd_handoffs h WHERE h.organization_id = own AND h.state <> 'pending' AND h.updated_at < before AND NOT EXISTS (
            SELECT FROM cd_rollouts r WHERE r.organization_id = own AND h.subject_kind = 'rollout' AND r.id = h.subject_id AND r.state IN ('pending', 'in_progress', 'paused')
        ) ORDER BY h.updated_at LIMIT at_most;
    WHEN 'closings' THEN
        RETURN QUERY SELECT c.id FROM cd_rollout_closings c WHERE c.organization_id = own AND c.settled AND c.updated_at < before ORDER BY c.updated_at LIMIT at_most;
    WHEN 'sign_ins' THEN -- a session before the token that it began with
        RETURN QUERY SELECT t.id FROM cd_access_tokens t WHERE t.organization_id = own AND (t.sign_in OR t.parent_id IS NOT NULL) AND t.expires_at < before
            AND NOT EXISTS (SELECT FROM cd_access_tokens s WHERE s.organization_id = own AND s.parent_id = t.id) ORDER BY t.expires_at LIMIT at_most;
    WHEN 'tried_calls' THEN -- they are permitted calls, and the evidence of nothing; those that people were asked about have a quorum
        RETURN QUERY SELECT c.id FROM cd_call_requests c WHERE c.organization_id = own AND c.state = 'permitted' AND c.quorum = 0 AND c.created_at < before
            ORDER BY c.created_at LIMIT at_most;
    END CASE;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_delete_settled(about text, at_most integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    own  CONSTANT bigint := NULLIF(current_setting('lockstep.organization', true), '')::bigint;
    days integer;
    ids  bigint[];
BEGIN
    -- Here, and not in the service: a fault of it deletes nothing of an organization that is under a hold.
    PERFORM FROM cd_legal_holds h WHERE h.organization_id = own AND h.in_force;
    IF FOUND THEN
        RETURN 0;
    END IF;
    SELECT r.keep_days INTO days FROM cd_retention_rules r WHERE r.organization_id = own AND r.kind = about;
    IF NOT FOUND AND about = 'tried_calls' THEN
        days := 30;
    END IF;
    IF COALESCE(days, 0) = 0 THEN
        RETURN 0;
    END IF;
    ids := ARRAY(SELECT cd_settled(about, now() - make_interval(days => days), at_most));
    CASE about
    WHEN 'requests' THEN DELETE FROM cd_requests WHERE organization_id = own AND id = ANY (ids);
    WHEN 'handoffs' THEN DELETE FROM cd_handoffs WHERE organization_id = own AND id = ANY (ids);
    WHEN 'closings' THEN DELETE FROM cd_rollout_closings WHERE organization_id = own AND id = ANY (ids);
    WHEN 'sign_ins' THEN DELETE FROM cd_access_tokens WHERE organization_id = own AND id = ANY (ids);
    WHEN 'tried_calls' THEN DELETE FROM cd_call_requests WHERE organization_id = own AND id = ANY (ids);
    END CASE;
    RETURN cardinality(ids);
END $$;
-- +goose StatementEnd

-- +goose Down
DELETE FROM cd_retention_rules WHERE kind = 'tried_calls';
ALTER TABLE cd_retention_rules DROP CONSTRAINT cd_retention_rules_kind_is_known;
ALTER TABLE cd_retention_rules ADD CONSTRAINT cd_retention_rules_kind_is_known CHECK (kind IN ('requests', 'handoffs', 'closings', 'sign_ins'));

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_settled(about text, before timestamptz, at_most integer) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    own CONSTANT bigint := NULLIF(current_setting('lockstep.organization', true), '')::bigint;
BEGIN
    CASE about
    WHEN 'requests' THEN
        RETURN QUERY SELECT r.id FROM cd_requests r WHERE r.organization_id = own AND r.created_at < before ORDER BY r.created_at LIMIT at_most;
    WHEN 'handoffs' THEN -- those of rollouts under way may have to be repeated
        RETURN QUERY SELECT h.id FROM cd_handoffs h WHERE h.organization_id = own AND h.state <> 'pending' AND h.updated_at < before AND NOT EXISTS (
            SELECT FROM cd_rollouts r WHERE r.organization_id = own AND h.subject_kind = 'rollout' AND r.id = h.subject_id AND r.state IN ('pending', 'in_progress', 'paused')
        ) ORDER BY h.updated_at LIMIT at_most;
    WHEN 'closings' THEN
        RETURN QUERY SELECT c.id FROM cd_rollout_closings c WHERE c.organization_id = own AND c.settled AND c.updated_at < before ORDER BY c.updated_at LIMIT at_most;
    WHEN 'sign_ins' THEN -- a session before the token that it began with
        RETURN QUERY SELECT t.id FROM cd_access_tokens t WHERE t.organization_id = own AND (t.sign_in OR t.parent_id IS NOT NULL) AND t.expires_at < before
            AND NOT EXISTS (SELECT FROM cd_access_tokens s WHERE s.organization_id = own AND s.parent_id = t.id) ORDER BY t.expires_at LIMIT at_most;
    END CASE;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_delete_settled(about text, at_most integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    own  CONSTANT bigint := NULLIF(current_setting('lockstep.organization', true), '')::bigint;
    days integer;
    ids  bigint[];
BEGIN
    -- Here, and not in the service: a fault of it deletes nothing of an organization that is under a hold.
    PERFORM FROM cd_legal_holds h WHERE h.organization_id = own AND h.in_force;
    IF FOUND THEN
        RETURN 0;
    END IF;
    SELECT r.keep_days INTO days FROM cd_retention_rules r WHERE r.organization_id = own AND r.kind = about;
    IF COALESCE(days, 0) = 0 THEN
        RETURN 0;
    END IF;
    ids := ARRAY(SELECT cd_settled(about, now() - make_interval(days => days), at_most));
    CASE about
    WHEN 'requests' THEN DELETE FROM cd_requests WHERE organization_id = own AND id = ANY (ids);
    WHEN 'handoffs' THEN DELETE FROM cd_handoffs WHERE organization_id = own AND id = ANY (ids);
    WHEN 'closings' THEN DELETE FROM cd_rollout_closings WHERE organization_id = own AND id = ANY (ids);
    WHEN 'sign_ins' THEN DELETE FROM cd_access_tokens WHERE organization_id = own AND id = ANY (ids);
    END CASE;
    RETURN cardinality(ids);
END $$;
-- +goose StatementEnd
