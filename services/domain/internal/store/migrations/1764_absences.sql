-- While nobody looks at deadlines, as the service is stopped, time at work does not count (R4-25).

-- +goose Up
ALTER TABLE installation ADD COLUMN looked_at timestamptz;
COMMENT ON COLUMN installation.looked_at IS 'When a replica has looked at deadlines last, to half a minute.';
ALTER TABLE cd_rollout_deadlines ADD COLUMN away_seconds integer NOT NULL DEFAULT 0;
ALTER TABLE cd_rollout_deadlines ADD CONSTRAINT cd_rollout_deadlines_away_is_known_at_work CHECK (away_seconds >= 0 AND (at_work OR away_seconds = 0));
COMMENT ON COLUMN cd_rollout_deadlines.away_seconds IS 'For how long nobody has looked at deadlines since it has started.';

-- +goose StatementBegin
CREATE FUNCTION cd_begin_deadline_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.away_seconds := 0;
    RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_begin_deadline_again IS 'A retry starts deadlines anew.';
CREATE TRIGGER cd_rollout_deadlines_begin_again BEFORE UPDATE ON cd_rollout_deadlines
    FOR EACH ROW WHEN (OLD.started_at IS DISTINCT FROM NEW.started_at) EXECUTE FUNCTION cd_begin_deadline_again();

-- +goose StatementBegin
CREATE FUNCTION cd_notice_absence(at timestamptz) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    before timestamptz;
    organization bigint;
    all_of bigint[];
    moved bigint;
    several bigint := 0;
BEGIN
    SELECT i.looked_at INTO before FROM installation i;
    IF before > at - interval '30 seconds' THEN
        RETURN 0;
    END IF;
    SELECT i.looked_at INTO before FROM installation i FOR UPDATE; -- another replica may just have looked
    IF before > at - interval '30 seconds' THEN
        RETURN 0;
    END IF;
    UPDATE installation SET looked_at = at;
    IF before IS NULL OR before > at - interval '2 minutes' THEN
        RETURN 0;
    END IF;
    PERFORM set_config('lockstep.across', 'on', true);
    all_of := ARRAY(SELECT DISTINCT d.organization_id FROM cd_rollout_deadlines d WHERE d.at_work AND d.outcome = '' AND d.started_at < at);
    PERFORM set_config('lockstep.across', '', true);
    FOREACH organization IN ARRAY all_of LOOP
        PERFORM set_config('lockstep.organization', organization::text, true);
        UPDATE cd_rollout_deadlines d SET
            away_seconds = d.away_seconds + extract(epoch FROM at - GREATEST(before, d.started_at))::integer,
            due_at = d.due_at + (at - GREATEST(before, d.started_at))
        WHERE d.organization_id = organization AND d.at_work AND d.outcome = '' AND d.started_at < at;
        GET DIAGNOSTICS moved = ROW_COUNT;
        several := several + moved;
    END LOOP;
    PERFORM set_config('lockstep.organization', '', true);
    RETURN several;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_notice_absence IS 'The service is stopped for all organizations.';

-- +goose Down
DROP FUNCTION cd_notice_absence;
DROP TRIGGER cd_rollout_deadlines_begin_again ON cd_rollout_deadlines;
DROP FUNCTION cd_begin_deadline_again;
ALTER TABLE cd_rollout_deadlines DROP COLUMN away_seconds;
ALTER TABLE installation DROP COLUMN looked_at;
