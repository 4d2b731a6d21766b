-- How long what is settled is kept, by organization and kind (D65). Nothing is deleted where an organization has set no time.

-- +goose Up
CREATE TABLE cd_retention_rules (
    id              bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    organization_id bigint NOT NULL CONSTRAINT cd_retention_rules_organization REFERENCES cd_organizations (id),
    kind            text   NOT NULL CONSTRAINT cd_retention_rules_kind_is_known CHECK (kind IN ('requests', 'handoffs', 'closings', 'sign_ins')),
    keep_days       integer NOT NULL CONSTRAINT cd_retention_rules_time_is_bounded CHECK (keep_days = 0 OR keep_days BETWEEN 7 AND 3650),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_retention_rules_pkey PRIMARY KEY (organization_id, kind)
);
CREATE TRIGGER cd_retention_rules_touch BEFORE UPDATE ON cd_retention_rules FOR EACH ROW EXECUTE FUNCTION cd_touch();
COMMENT ON TABLE cd_retention_rules IS 'How long an organization keeps settled rows of a kind; a few rows for each organization.';
COMMENT ON COLUMN cd_retention_rules.keep_days IS '0 for as long as the organization exists.';

CREATE TABLE cd_legal_holds (
    id              bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    organization_id bigint NOT NULL CONSTRAINT cd_legal_holds_organization REFERENCES cd_organizations (id),
    in_force        boolean NOT NULL,
    reason          text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_legal_holds_pkey PRIMARY KEY (organization_id),
    CONSTRAINT cd_legal_holds_has_reason CHECK (NOT in_force OR reason <> '')
);
CREATE TRIGGER cd_legal_holds_touch BEFORE UPDATE ON cd_legal_holds FOR EACH ROW EXECUTE FUNCTION cd_touch();
COMMENT ON TABLE cd_legal_holds IS 'While one is in force, nothing of the organization is deleted for its age. One row for each organization that ever had one.';

CREATE INDEX cd_requests_by_age ON cd_requests (organization_id, created_at);
CREATE INDEX cd_handoffs_settled ON cd_handoffs (organization_id, updated_at) WHERE state <> 0;
CREATE INDEX cd_rollout_closings_settled ON cd_rollout_closings (organization_id, updated_at) WHERE settled;
CREATE INDEX cd_access_tokens_of_sign_ins ON cd_access_tokens (organization_id, expires_at) WHERE sign_in OR parent_id IS NOT NULL;

-- +goose StatementBegin
CREATE FUNCTION cd_settled(about text, before timestamptz, at_most integer) RETURNS SETOF bigint LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
    own CONSTANT bigint := NULLIF(current_setting('lockstep.organization', true), '')::bigint;
BEGIN
    CASE about
    WHEN 'requests' THEN
        RETURN QUERY SELECT r.id FROM cd_requests r WHERE r.organization_id = own AND r.created_at < before ORDER BY r.created_at LIMIT at_most;
    WHEN 'handoffs' THEN -- those of rollouts under way may have to be repeated
        RETURN QUERY SELECT h.id FROM cd_handoffs h WHERE h.organization_id = own AND h.state <> 0 AND h.updated_at < before AND NOT EXISTS (
            SELECT FROM cd_rollouts r WHERE r.organization_id = own AND h.subject_kind = 'rollout' AND r.id = h.subject_id AND r.state < 3
        ) ORDER BY h.updated_at LIMIT at_most;
    WHEN 'closings' THEN
        RETURN QUERY SELECT c.id FROM cd_rollout_closings c WHERE c.organization_id = own AND c.settled AND c.updated_at < before ORDER BY c.updated_at LIMIT at_most;
    WHEN 'sign_ins' THEN -- a session before the token that it began with
        RETURN QUERY SELECT t.id FROM cd_access_tokens t WHERE t.organization_id = own AND (t.sign_in OR t.parent_id IS NOT NULL) AND t.expires_at < before
            AND NOT EXISTS (SELECT FROM cd_access_tokens s WHERE s.organization_id = own AND s.parent_id = t.id) ORDER BY t.expires_at LIMIT at_most;
    END CASE;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_settled(text, timestamptz, integer) IS 'What may be deleted of a kind, oldest first: of the organization that the transaction has entered.';

-- The role that the service works as deletes nothing of an organization. This runs as the owner, behind the same walls, and reads the rule
-- itself: a fault of the service deletes nothing earlier.
-- +goose StatementBegin
CREATE FUNCTION cd_delete_settled(about text, at_most integer) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
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
COMMENT ON FUNCTION cd_delete_settled(text, integer) IS 'Deletes the oldest rows of a kind that the organization''s rule does not keep, and answers how many; none while a legal hold is in force.';

-- +goose Down
DROP FUNCTION cd_delete_settled(text, integer);
DROP FUNCTION cd_settled(text, timestamptz, integer);
DROP INDEX cd_access_tokens_of_sign_ins, cd_rollout_closings_settled, cd_handoffs_settled, cd_requests_by_age;
DROP TABLE cd_legal_holds, cd_retention_rules;
