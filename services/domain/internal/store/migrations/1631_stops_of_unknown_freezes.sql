-- A release that does not know labels of freezes stops nothing by them, and bypasses none (D49).

-- +goose Up
-- It takes a freeze by label for one of everything else in its scope: it would stop a passage that the freeze does not concern, and commit
-- that, so that nobody looks again before the freeze ends. Refused, the event comes again, to a replica that knows.
-- +goose StatementBegin
CREATE FUNCTION cd_refuse_unknown_stops() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM cd_freezes f WHERE f.organization_id = NEW.organization_id
        AND num_nonnulls(f.application_labels, f.environment_labels) > 0
        AND CASE WHEN TG_TABLE_NAME = 'cd_passage_stops' THEN f.id = (to_jsonb(NEW) ->> 'control_id')::bigint
            ELSE f.ended_at IS NULL AND f.ends_at > now() END)
    THEN
        -- The class of the code is that of what passes: the event is delivered again, and the caller may ask again.
        RAISE EXCEPTION 'this replica belongs to a release that does not know all controls, and found freezes by label; expected a replica of the present release'
            USING ERRCODE = 'lock_not_available', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_refuse_unknown_stops IS 'A replica that does not know labels of freezes leaves what they may stop to one that does.';
CREATE TRIGGER cd_passage_stops_controls_are_known BEFORE INSERT ON cd_passage_stops FOR EACH ROW
    WHEN (new.kind = 'freeze' AND (COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0'))::integer < 4)
    EXECUTE FUNCTION cd_refuse_unknown_stops();
CREATE TRIGGER cd_rollout_transitions_bypasses_are_known BEFORE INSERT ON cd_rollout_transitions FOR EACH ROW
    WHEN (new.event = 'bypass_freeze' AND (COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0'))::integer < 4)
    EXECUTE FUNCTION cd_refuse_unknown_stops();

-- What was stopped before, by whatever release, is evaluated again once, by a replica that knows: no other one can say that it is stopped.
ALTER TABLE cd_freezes NO FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_passage_stops NO FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_passage_reviews NO FORCE ROW LEVEL SECURITY;
INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at)
SELECT DISTINCT s.organization_id, s.rollout_id, now() FROM cd_passage_stops s
JOIN cd_freezes f ON f.organization_id = s.organization_id AND f.id = s.control_id
WHERE s.kind = 'freeze' AND num_nonnulls(f.application_labels, f.environment_labels) > 0
ON CONFLICT DO NOTHING;
ALTER TABLE cd_passage_reviews FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_passage_stops FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_freezes FORCE ROW LEVEL SECURITY;

-- +goose Down
DROP TRIGGER cd_rollout_transitions_bypasses_are_known ON cd_rollout_transitions;
DROP TRIGGER cd_passage_stops_controls_are_known ON cd_passage_stops;
DROP FUNCTION cd_refuse_unknown_stops();
