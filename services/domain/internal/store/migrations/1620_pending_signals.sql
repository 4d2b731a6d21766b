-- What many undecided signals cost: each event counts those of its triggers, and each decision looks for the next organization (D58, R4-01).

-- +goose Up
CREATE INDEX cd_trigger_signals_pending ON cd_trigger_signals (organization_id, trigger_id, id) WHERE state = 'pending';
DROP INDEX cd_trigger_signals_due;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_organizations_with_due_signals(until timestamptz) RETURNS SETOF bigint LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    -- From organization to organization along an index: what it costs is how many organizations have something open, not how much.
    RETURN QUERY WITH RECURSIVE pending AS (
        (SELECT s.organization_id FROM cd_trigger_signals s WHERE s.state = 'pending' ORDER BY s.organization_id LIMIT 1)
        UNION ALL
        SELECT (SELECT s.organization_id FROM cd_trigger_signals s WHERE s.state = 'pending' AND s.organization_id > p.organization_id ORDER BY s.organization_id LIMIT 1)
        FROM pending p WHERE p.organization_id IS NOT NULL
    )
    SELECT p.organization_id FROM pending p CROSS JOIN LATERAL (
        SELECT FROM cd_trigger_signals s WHERE s.organization_id = p.organization_id AND s.state = 'pending' AND s.due_at <= until ORDER BY s.due_at LIMIT 1
    ) due;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_signals(before timestamptz, most integer) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE changed bigint;
BEGIN
    WITH old AS (
        SELECT s.organization_id, s.id FROM cd_trigger_signals s CROSS JOIN LATERAL (
            SELECT FROM cd_trigger_signals n WHERE n.organization_id = s.organization_id AND n.trigger_id = s.trigger_id AND n.id > s.id LIMIT 1
        ) newer
        WHERE s.organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND s.state = 'decided' AND s.decided_at < before
        ORDER BY s.decided_at LIMIT most
    )
    DELETE FROM cd_trigger_signals s USING old WHERE s.organization_id = old.organization_id AND s.id = old.id;
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;
-- +goose StatementEnd

-- +goose Down
CREATE INDEX cd_trigger_signals_due ON cd_trigger_signals (due_at, id) WHERE state = 'pending';
DROP INDEX cd_trigger_signals_pending;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_organizations_with_due_signals(until timestamptz) RETURNS SETOF bigint LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT DISTINCT organization_id FROM cd_trigger_signals WHERE state = 'pending' AND due_at <= until;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_signals(before timestamptz, most integer) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT s.organization_id, s.id FROM cd_trigger_signals s
        WHERE s.organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND s.state = 'decided' AND s.decided_at < before
          AND EXISTS (SELECT FROM cd_trigger_signals n WHERE n.organization_id = s.organization_id AND n.trigger_id = s.trigger_id AND n.id > s.id)
        LIMIT most
    ), gone AS (DELETE FROM cd_trigger_signals s USING old WHERE s.organization_id = old.organization_id AND s.id = old.id RETURNING 1)
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
