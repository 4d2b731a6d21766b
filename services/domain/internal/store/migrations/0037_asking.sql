-- What waits for somebody is found without looking at all that is under way: a rollout says whether it has ever asked.

-- +goose Up
ALTER TABLE cd_rollouts ADD COLUMN asked boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cd_rollouts.asked IS 'Its journal has a request for an approval, answered or not. Only kept for those that were under way when this was made, and newer ones.';
-- Behind the walls of the tables the owner sees nothing, unless it says that it looks across organizations; what it changes
-- has to be of one that it has entered.
-- +goose StatementBegin
DO $$
DECLARE
    o bigint;
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    FOR o IN SELECT id FROM cd_organizations LOOP
        PERFORM set_config('lockstep.organization', o::text, true);
        UPDATE cd_rollouts r SET asked = true WHERE r.organization_id = o AND r.state IN (0, 1, 2)
            AND EXISTS (SELECT FROM cd_rollout_transitions t WHERE t.organization_id = o AND t.rollout_id = r.id AND t.event = 'request_approval');
    END LOOP;
    PERFORM set_config('lockstep.organization', '', true), set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
CREATE INDEX cd_rollouts_asking ON cd_rollouts (organization_id, id) WHERE asked AND state IN (0, 1, 2);
-- +goose StatementBegin
CREATE FUNCTION cd_keep_asked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE cd_rollouts SET asked = true WHERE organization_id = NEW.organization_id AND id = NEW.rollout_id AND NOT asked;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER cd_rollout_transitions_keep_asked AFTER INSERT ON cd_rollout_transitions FOR EACH ROW
    WHEN (NEW.event = 'request_approval') EXECUTE FUNCTION cd_keep_asked();

-- +goose Down
DROP TRIGGER cd_rollout_transitions_keep_asked ON cd_rollout_transitions;
DROP FUNCTION cd_keep_asked();
DROP INDEX cd_rollouts_asking;
ALTER TABLE cd_rollouts DROP COLUMN asked;
