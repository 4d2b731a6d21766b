-- While replicas are replaced one by one, those of earlier releases do not know every control (D46). They open no passage that they cannot
-- judge, and begin no rollout whose conditions they cannot pin; a replica that knows the controls does it when the request or the event
-- comes again. Every transaction of a release says which controls it knows (EnterOrganization); earlier releases say nothing.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_refuse_unknown_controls() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    control text;
BEGIN
    SELECT CASE
        WHEN TG_TABLE_NAME = 'cd_rollout_transitions'
            AND EXISTS (SELECT FROM cd_rollouts r WHERE r.organization_id = NEW.organization_id AND r.id = (to_jsonb(NEW) ->> 'rollout_id')::bigint AND r.passages)
            THEN 'the conditions that the rollout has pinned'
        WHEN EXISTS (SELECT FROM cd_policy_sets s
            JOIN cd_policy_versions v ON v.organization_id = s.organization_id AND v.policy_set_id = s.id AND v.version = s.version
            WHERE s.organization_id = NEW.organization_id AND v.mode = 'enforce') THEN 'policies'
        WHEN EXISTS (SELECT FROM cd_environment_checks c WHERE c.organization_id = NEW.organization_id AND c.checks <> '{}')
            THEN 'checks of environments'
        WHEN EXISTS (SELECT FROM cd_freezes f WHERE f.organization_id = NEW.organization_id AND f.ended_at IS NULL AND f.ends_at > now())
            THEN 'freezes'
        WHEN EXISTS (SELECT FROM cd_vetoes v WHERE v.organization_id = NEW.organization_id AND v.lifted_at IS NULL) THEN 'vetoes'
        WHEN EXISTS (SELECT FROM cd_environment_pins p WHERE p.organization_id = NEW.organization_id AND p.pinned) THEN 'pins'
        WHEN TG_TABLE_NAME = 'cd_rollouts' AND EXISTS (SELECT FROM cd_application_flow_definitions d
            WHERE d.organization_id = NEW.organization_id AND d.id = (to_jsonb(NEW) ->> 'flow_definition_id')::bigint
            AND jsonb_path_exists(d.definition::jsonb, '$.**.checks')) THEN 'checks of pipelines'
    END INTO control;
    IF control IS NOT NULL THEN
        -- The class of the code is that of what passes: the event is delivered again, and the caller may ask again.
        RAISE EXCEPTION 'this replica belongs to a release that does not know all controls, and found %; expected a replica of the present release', control
            USING ERRCODE = 'lock_not_available', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_refuse_unknown_controls() IS 'A release with a new control raises the number that EnterOrganization sets, and replaces the triggers by ones that expect it.';

CREATE TRIGGER cd_rollout_transitions_controls_are_known BEFORE INSERT ON cd_rollout_transitions FOR EACH ROW
    WHEN (NEW.event = 'pass_gate' AND coalesce(NULLIF(current_setting('lockstep.controls', true), ''), '0')::integer < 1)
    EXECUTE FUNCTION cd_refuse_unknown_controls();
CREATE TRIGGER cd_rollouts_controls_are_known BEFORE INSERT ON cd_rollouts FOR EACH ROW
    WHEN (coalesce(NULLIF(current_setting('lockstep.controls', true), ''), '0')::integer < 1)
    EXECUTE FUNCTION cd_refuse_unknown_controls();

-- +goose Down
DROP TRIGGER IF EXISTS cd_rollouts_controls_are_known ON cd_rollouts;
DROP TRIGGER IF EXISTS cd_rollout_transitions_controls_are_known ON cd_rollout_transitions;
DROP FUNCTION cd_refuse_unknown_controls();
