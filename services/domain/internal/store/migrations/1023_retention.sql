-- How long what is settled is kept.

-- +goose Up
CREATE TABLE cd_retention_rules (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_retention_rules_organization REFERENCES cd_organizations (id),
    kind            text NOT NULL,
    keep_days       integer NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, kind),
    CONSTRAINT cd_retention_rules_kind_is_known CHECK (kind IN ('requests', 'handoffs', 'closings', 'sign_ins')),
    CONSTRAINT cd_retention_rules_time_is_bounded CHECK (keep_days = 0 OR keep_days >= 7 AND keep_days <= 3650)
);
COMMENT ON TABLE cd_retention_rules IS 'How long an organization keeps settled rows of a kind; a few rows for each organization.';
COMMENT ON COLUMN cd_retention_rules.keep_days IS '0 for as long as the organization exists.';
CREATE TRIGGER cd_retention_rules_touch BEFORE UPDATE ON cd_retention_rules FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_legal_holds (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint PRIMARY KEY CONSTRAINT cd_legal_holds_organization REFERENCES cd_organizations (id),
    in_force        boolean NOT NULL,
    reason          text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_legal_holds_has_reason CHECK (NOT in_force OR reason <> '')
);
COMMENT ON TABLE cd_legal_holds IS 'While one is in force, nothing of the organization is deleted for its age. One row for each organization that ever had one.';
CREATE TRIGGER cd_legal_holds_touch BEFORE UPDATE ON cd_legal_holds FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_settled(about text, before timestamptz, at_most integer) RETURNS SETOF bigint
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
COMMENT ON FUNCTION cd_settled IS 'What may be deleted of a kind, oldest first: of the organization that the transaction has entered.';

-- +goose StatementBegin
CREATE FUNCTION cd_delete_settled(about text, at_most integer) RETURNS bigint
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
COMMENT ON FUNCTION cd_delete_settled IS 'Deletes the oldest rows of a kind that the organization''s rule does not keep, and answers how many; none while a legal hold is in force.';

-- +goose Down
DROP FUNCTION cd_delete_settled;
DROP FUNCTION cd_settled;
DROP TABLE cd_legal_holds;
DROP TABLE cd_retention_rules;
