-- How a rollout leaves the queue of its application is kept: when, and who has taken it out (R4-05). The latest that has is looked up by application.

-- +goose Up
ALTER TABLE cd_queued_rollouts
    ADD COLUMN ended_at timestamptz,
    ADD COLUMN cancelled_by_type text NOT NULL DEFAULT ''
        CONSTRAINT cd_queued_rollouts_canceller_is_known CHECK (cancelled_by_type IN ('', 'user', 'agent')),
    ADD COLUMN cancelled_by_id bigint,
    ADD CONSTRAINT cd_queued_rollouts_cancelled_is_dropped CHECK (cancelled_by_type = '' OR state = 'dropped');
COMMENT ON COLUMN cd_queued_rollouts.ended_at IS 'When it began or was dropped; null while it waits, and for what an earlier release has settled.';
COMMENT ON COLUMN cd_queued_rollouts.cancelled_by_type IS 'The kind of member who has taken it out of the queue; empty for nobody.';
COMMENT ON COLUMN cd_queued_rollouts.cancelled_by_id IS 'The member who has taken it out of the queue; null for nobody.';
CREATE INDEX cd_queued_rollouts_ended ON cd_queued_rollouts (organization_id, application_id, id) WHERE state <> 'pending';
-- By which those beyond the latest are forgotten.
CREATE INDEX cd_queued_rollouts_dropped ON cd_queued_rollouts (organization_id, application_id, id) WHERE state = 'dropped';
-- +goose StatementBegin
CREATE FUNCTION cd_forget_dropped_rollouts(of_application bigint) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE changed bigint;
BEGIN
    WITH old AS (
        SELECT organization_id, id FROM cd_queued_rollouts
        WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND application_id = of_application AND state = 'dropped'
        ORDER BY id DESC OFFSET 50 LIMIT 100
    )
    DELETE FROM cd_queued_rollouts q USING old WHERE q.organization_id = old.organization_id AND q.id = old.id;
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_dropped_rollouts IS
    'Of the rollouts that have left the queue of an application and did not begin, the latest 50 are kept. What began belongs to its rollout.';

-- +goose Down
DROP FUNCTION cd_forget_dropped_rollouts;
DROP INDEX cd_queued_rollouts_dropped;
DROP INDEX cd_queued_rollouts_ended;
ALTER TABLE cd_queued_rollouts
    DROP CONSTRAINT cd_queued_rollouts_cancelled_is_dropped,
    DROP COLUMN cancelled_by_id,
    DROP COLUMN cancelled_by_type,
    DROP COLUMN ended_at;
