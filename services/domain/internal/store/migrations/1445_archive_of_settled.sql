-- Settled rows are archived before they are deleted, and nothing is deleted that has come into use or under a hold meanwhile (D65).

-- +goose Up
CREATE TABLE installation (
    one boolean CONSTRAINT installation_pkey PRIMARY KEY DEFAULT true CONSTRAINT installation_is_one CHECK (one),
    id  text NOT NULL CONSTRAINT installation_id_is_random CHECK (id ~ '^[0-9a-f]{32}$')
);
INSERT INTO installation (id) VALUES (replace(gen_random_uuid()::text, '-', ''));
COMMENT ON TABLE installation IS 'Its id is in what it archives: another installation with the same bucket and prefix is noticed.';

CREATE TABLE cd_archived_objects (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_archived_objects_organization REFERENCES cd_organizations (id),
    kind            text NOT NULL CONSTRAINT cd_archived_objects_kind_is_known CHECK (kind IN ('handoffs', 'closings', 'tried_calls')),
    name            text NOT NULL CONSTRAINT cd_archived_objects_name_is_bounded CHECK (octet_length(name) BETWEEN 1 AND 500),
    digest          bytea NOT NULL CONSTRAINT cd_archived_objects_digest_is_sha256 CHECK (octet_length(digest) = 32),
    row_count       integer NOT NULL CONSTRAINT cd_archived_objects_row_count_counts CHECK (row_count > 0),
    kept            bigint[] NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, kind, name),
    CONSTRAINT cd_archived_objects_keep_fewer CHECK (cardinality(kept) < row_count)
);
COMMENT ON TABLE cd_archived_objects IS 'The objects of the archive whose rows were deleted; each was added with that deletion. One for up to a thousand deleted rows, kept as long as the archive.';
COMMENT ON COLUMN cd_archived_objects.digest IS 'The SHA-256 of the lines of its rows.';
COMMENT ON COLUMN cd_archived_objects.row_count IS 'How many it has, with those that were kept.';
COMMENT ON COLUMN cd_archived_objects.kept IS 'The ids of rows that it has and that were not deleted with the others; a later object may have them, too.';
CREATE TRIGGER cd_archived_objects_are_append_only BEFORE UPDATE OR DELETE ON cd_archived_objects FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_archived_objects_are_kept BEFORE TRUNCATE ON cd_archived_objects EXECUTE FUNCTION cd_refuse();

-- +goose StatementBegin
CREATE FUNCTION cd_wait_for_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('lockstep/retention/' || TG_TABLE_SCHEMA, NEW.organization_id));
    RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_wait_for_deletion IS 'Once a hold or a rule is confirmed, no deletion that has not seen it is under way.';
CREATE TRIGGER cd_legal_holds_wait BEFORE INSERT OR UPDATE ON cd_legal_holds FOR EACH ROW EXECUTE FUNCTION cd_wait_for_deletion();
CREATE TRIGGER cd_retention_rules_wait BEFORE INSERT OR UPDATE ON cd_retention_rules FOR EACH ROW EXECUTE FUNCTION cd_wait_for_deletion();

DROP FUNCTION cd_settled(text, timestamptz, integer);
-- +goose StatementBegin
CREATE FUNCTION cd_settled(about text, before timestamptz, at_most integer, among bigint[] DEFAULT NULL) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    own CONSTANT bigint := NULLIF(current_setting('lockstep.organization', true), '')::bigint;
BEGIN
    CASE about
    WHEN 'requests' THEN
        RETURN QUERY SELECT r.id FROM cd_requests r WHERE r.organization_id = own AND (among IS NULL OR r.id = ANY (among)) AND r.created_at < before
            ORDER BY r.created_at LIMIT at_most;
    WHEN 'handoffs' THEN -- those of rollouts under way may have to be repeated
        RETURN QUERY SELECT h.id FROM cd_handoffs h WHERE h.organization_id = own AND (among IS NULL OR h.id = ANY (among))
            AND h.state <> 'pending' AND h.updated_at < before AND NOT EXISTS (
            SELECT FROM cd_rollouts r WHERE r.organization_id = own AND h.subject_kind = 'rollout' AND r.id = h.subject_id AND r.state IN ('pending', 'in_progress', 'paused')
        ) ORDER BY h.updated_at LIMIT at_most;
    WHEN 'closings' THEN
        RETURN QUERY SELECT c.id FROM cd_rollout_closings c WHERE c.organization_id = own AND (among IS NULL OR c.id = ANY (among))
            AND c.settled AND c.updated_at < before ORDER BY c.updated_at LIMIT at_most;
    WHEN 'sign_ins' THEN -- a session before the token that it began with
        RETURN QUERY SELECT t.id FROM cd_access_tokens t WHERE t.organization_id = own AND (among IS NULL OR t.id = ANY (among))
            AND (t.sign_in OR t.parent_id IS NOT NULL) AND t.expires_at < before
            AND NOT EXISTS (SELECT FROM cd_access_tokens s WHERE s.organization_id = own AND s.parent_id = t.id) ORDER BY t.expires_at LIMIT at_most;
    WHEN 'tried_calls' THEN -- they are permitted calls, and the evidence of nothing; those that people were asked about have a quorum
        RETURN QUERY SELECT c.id FROM cd_call_requests c WHERE c.organization_id = own AND (among IS NULL OR c.id = ANY (among))
            AND c.state = 'permitted' AND c.quorum = 0 AND c.created_at < before ORDER BY c.created_at LIMIT at_most;
    END CASE;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_settled IS 'What may be deleted of a kind, oldest first, of some rows or of all: of the organization that the transaction has entered.';

-- +goose StatementBegin
CREATE FUNCTION cd_settled_before(about text) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
DECLARE
    own  CONSTANT bigint := NULLIF(current_setting('lockstep.organization', true), '')::bigint;
    days integer;
BEGIN
    SELECT r.keep_days INTO days FROM cd_retention_rules r WHERE r.organization_id = own AND r.kind = about;
    IF NOT FOUND AND about = 'tried_calls' THEN
        days := 30;
    END IF;
    RETURN now() - make_interval(days => NULLIF(days, 0));
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_settled_before IS 'Before when rows of a kind are due by the organization''s rule, whether or not a hold is in force; null for never. A day has 24 hours.';

-- +goose StatementBegin
CREATE FUNCTION cd_settled_due(about text) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    -- Here, and not in the service: a fault of it deletes nothing of an organization that is under a hold.
    PERFORM FROM cd_legal_holds h WHERE h.organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND h.in_force;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    RETURN cd_settled_before(about);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_settled_due IS 'Before when rows of a kind may be deleted; null for never: without a rule, and while a legal hold is in force.';

-- +goose StatementBegin
CREATE FUNCTION cd_settled_rows(about text, at_most integer, most_bytes bigint) RETURNS TABLE (id bigint, content text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
DECLARE
    own   CONSTANT bigint := NULLIF(current_setting('lockstep.organization', true), '')::bigint;
    bytes bigint := 0;
BEGIN
    FOREACH id IN ARRAY ARRAY(SELECT cd_settled(about, cd_settled_due(about), at_most)) LOOP
        content := CASE about
            WHEN 'handoffs' THEN (SELECT to_jsonb(r)::text FROM cd_handoffs r WHERE r.organization_id = own AND r.id = cd_settled_rows.id)
            WHEN 'closings' THEN (SELECT to_jsonb(r)::text FROM cd_rollout_closings r WHERE r.organization_id = own AND r.id = cd_settled_rows.id)
            WHEN 'tried_calls' THEN (SELECT to_jsonb(r)::text FROM cd_call_requests r WHERE r.organization_id = own AND r.id = cd_settled_rows.id)
        END;
        EXIT WHEN bytes > 0 AND bytes + octet_length(content) > most_bytes;
        bytes := bytes + octet_length(content);
        RETURN NEXT;
    END LOOP;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_settled_rows IS 'The oldest rows of a kind that the organization''s rule does not keep, as JSON, for the archive: up to so many bytes, but at least one; none while a legal hold is in force.';

-- +goose StatementBegin
CREATE FUNCTION cd_end_settled(about text, among bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    own CONSTANT bigint := NULLIF(current_setting('lockstep.organization', true), '')::bigint;
    ids bigint[] := among;
BEGIN
    -- Each statement sees what was committed before it: first nothing changes any more, then it is decided what is still due.
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('lockstep/retention/' || current_schema(), own));
    CASE about
    WHEN 'requests' THEN
        ids := ARRAY(SELECT r.id FROM cd_requests r WHERE r.organization_id = own AND r.id = ANY (ids) FOR UPDATE SKIP LOCKED);
    WHEN 'handoffs' THEN
        ids := ARRAY(SELECT r.id FROM cd_handoffs r WHERE r.organization_id = own AND r.id = ANY (ids) FOR UPDATE SKIP LOCKED);
    WHEN 'closings' THEN
        ids := ARRAY(SELECT r.id FROM cd_rollout_closings r WHERE r.organization_id = own AND r.id = ANY (ids) FOR UPDATE SKIP LOCKED);
    WHEN 'sign_ins' THEN
        ids := ARRAY(SELECT r.id FROM cd_access_tokens r WHERE r.organization_id = own AND r.id = ANY (ids) FOR UPDATE SKIP LOCKED);
    WHEN 'tried_calls' THEN
        ids := ARRAY(SELECT r.id FROM cd_call_requests r WHERE r.organization_id = own AND r.id = ANY (ids) FOR UPDATE SKIP LOCKED);
    END CASE;
    ids := ARRAY(SELECT cd_settled(about, cd_settled_due(about), cardinality(ids), ids));
    CASE about
    WHEN 'requests' THEN DELETE FROM cd_requests WHERE organization_id = own AND id = ANY (ids);
    WHEN 'handoffs' THEN DELETE FROM cd_handoffs WHERE organization_id = own AND id = ANY (ids);
    WHEN 'closings' THEN DELETE FROM cd_rollout_closings WHERE organization_id = own AND id = ANY (ids);
    WHEN 'sign_ins' THEN DELETE FROM cd_access_tokens WHERE organization_id = own AND id = ANY (ids);
    WHEN 'tried_calls' THEN DELETE FROM cd_call_requests WHERE organization_id = own AND id = ANY (ids);
    END CASE;
    RETURN ids;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_end_settled IS 'Deletes those of some rows of a kind that the organization''s rule still does not keep and that nobody has locked, and answers which.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_delete_settled(about text, at_most integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN cardinality(cd_end_settled(about, ARRAY(SELECT cd_settled(about, cd_settled_due(about), at_most))));
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION cd_delete_settled_rows(about text, archived bigint[], object text, sha256 bytea) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    ids CONSTANT bigint[] := cd_end_settled(about, archived);
BEGIN
    IF cardinality(ids) > 0 THEN
        INSERT INTO cd_archived_objects (organization_id, kind, name, digest, row_count, kept)
        VALUES (NULLIF(current_setting('lockstep.organization', true), '')::bigint, about, object, sha256, cardinality(archived),
            ARRAY(SELECT a FROM unnest(archived) a WHERE a <> ALL (ids) ORDER BY a));
    END IF;
    RETURN cardinality(ids);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_delete_settled_rows IS 'Deletes those of some archived rows of a kind that the organization''s rule still does not keep, notes the object that has them, and answers how many.';

-- +goose Down
DROP FUNCTION cd_delete_settled_rows;
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
DROP FUNCTION cd_end_settled;
DROP FUNCTION cd_settled_rows;
DROP FUNCTION cd_settled_due;
DROP FUNCTION cd_settled_before;
DROP FUNCTION cd_settled;
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
    WHEN 'tried_calls' THEN -- they are permitted calls, and the evidence of nothing; those that people were asked about have a quorum
        RETURN QUERY SELECT c.id FROM cd_call_requests c WHERE c.organization_id = own AND c.state = 'permitted' AND c.quorum = 0 AND c.created_at < before
            ORDER BY c.created_at LIMIT at_most;
    END CASE;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_settled IS 'What may be deleted of a kind, oldest first: of the organization that the transaction has entered.';
DROP TRIGGER cd_retention_rules_wait ON cd_retention_rules;
DROP TRIGGER cd_legal_holds_wait ON cd_legal_holds;
DROP FUNCTION cd_wait_for_deletion;
DROP TABLE cd_archived_objects;
DROP TABLE installation;
