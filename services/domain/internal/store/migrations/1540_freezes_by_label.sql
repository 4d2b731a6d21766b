-- Freezes by label of applications and of environments (D49).

-- +goose Up
ALTER TABLE cd_freezes ADD COLUMN application_labels jsonb
    CONSTRAINT cd_freezes_application_labels_are_some CHECK (jsonb_typeof(application_labels) = 'object' AND application_labels <> '{}'
        AND octet_length(application_labels::text) <= 16000);
ALTER TABLE cd_freezes ADD COLUMN environment_labels jsonb
    CONSTRAINT cd_freezes_environment_labels_are_some CHECK (jsonb_typeof(environment_labels) = 'object' AND environment_labels <> '{}'
        AND octet_length(environment_labels::text) <= 16000);
COMMENT ON COLUMN cd_freezes.application_labels IS 'The labels that an application has to have for the freeze to stop it; null limits nothing.';
COMMENT ON COLUMN cd_freezes.environment_labels IS 'The labels that an environment has to have for the freeze to stop what enters it; null limits nothing.';

-- A release that does not know labels of freezes takes such a freeze for one of everything else in its scope, and lets labels be changed
-- that it asks of: it grants nothing, and changes no label, while there is one.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_refuse_unknown_controls() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    control text;
    known   CONSTANT integer := COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0')::integer;
BEGIN
    SELECT CASE
        WHEN TG_TABLE_NAME IN ('cd_rollouts', 'cd_rollout_transitions', 'cd_details') AND EXISTS (SELECT FROM cd_freezes f
            WHERE f.organization_id = NEW.organization_id AND f.ended_at IS NULL AND f.ends_at > now()
            AND num_nonnulls(f.application_labels, f.environment_labels) > 0)
            THEN 'freezes by label'
        WHEN TG_TABLE_NAME = 'cd_details' THEN NULL
        WHEN known < 2 AND TG_TABLE_NAME = 'cd_rollout_transitions' AND EXISTS (SELECT FROM cd_rollout_environments e
            JOIN cd_rollout_fleets f ON f.organization_id = e.organization_id AND f.rollout_environment_id = e.id
            WHERE e.organization_id = NEW.organization_id AND e.rollout_id = (to_jsonb(NEW) ->> 'rollout_id')::bigint)
            THEN 'the waves of a fleet'
        WHEN TG_TABLE_NAME = 'cd_rollout_environments' AND EXISTS (SELECT FROM cd_environment_driver_bindings b
            WHERE b.organization_id = NEW.organization_id AND b.id = (to_jsonb(NEW) ->> 'driver_binding_id')::bigint AND b.fleet IS NOT NULL)
            THEN 'the fleet of an environment'
        WHEN TG_TABLE_NAME = 'cd_environment_driver_bindings' AND EXISTS (SELECT FROM cd_environment_driver_bindings b
            WHERE b.organization_id = NEW.organization_id AND b.environment_id = (to_jsonb(NEW) ->> 'environment_id')::bigint AND b.fleet IS NOT NULL
            AND b.version = (SELECT max(l.version) FROM cd_environment_driver_bindings l
                WHERE l.organization_id = b.organization_id AND l.environment_id = b.environment_id))
            THEN 'the fleet of an environment'
        WHEN TG_TABLE_NAME = 'cd_policy_versions' THEN (SELECT 'the applications of a policy set' FROM cd_policy_sets s
            WHERE s.organization_id = NEW.organization_id AND s.id = (to_jsonb(NEW) ->> 'policy_set_id')::bigint AND s.application_labels IS NOT NULL)
        WHEN known < 3 AND TG_TABLE_NAME IN ('cd_rollouts', 'cd_rollout_transitions') AND EXISTS (SELECT FROM cd_policy_sets s
            JOIN cd_policy_versions v ON v.organization_id = s.organization_id AND v.policy_set_id = s.id AND v.version = s.version
            WHERE s.organization_id = NEW.organization_id AND s.application_labels IS NOT NULL AND v.mode <> 'off')
            THEN 'policies of groups of applications'
        WHEN known > 0 OR TG_TABLE_NAME IN ('cd_rollout_environments', 'cd_environment_driver_bindings') THEN NULL -- it knows the others
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
DROP TRIGGER IF EXISTS cd_rollout_transitions_controls_are_known ON cd_rollout_transitions;
CREATE TRIGGER cd_rollout_transitions_controls_are_known BEFORE INSERT ON cd_rollout_transitions FOR EACH ROW
    WHEN (new.event = 'pass_gate' AND (COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0'))::integer < 4)
    EXECUTE FUNCTION cd_refuse_unknown_controls();
DROP TRIGGER IF EXISTS cd_rollouts_controls_are_known ON cd_rollouts;
CREATE TRIGGER cd_rollouts_controls_are_known BEFORE INSERT ON cd_rollouts FOR EACH ROW
    WHEN ((COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0'))::integer < 4)
    EXECUTE FUNCTION cd_refuse_unknown_controls();
CREATE TRIGGER cd_details_controls_are_known BEFORE INSERT OR UPDATE ON cd_details FOR EACH ROW
    WHEN (new.service_id IS NULL AND (COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0'))::integer < 4)
    EXECUTE FUNCTION cd_refuse_unknown_controls();

-- +goose Down
DROP TRIGGER cd_details_controls_are_known ON cd_details;
DROP TRIGGER IF EXISTS cd_rollout_transitions_controls_are_known ON cd_rollout_transitions;
CREATE TRIGGER cd_rollout_transitions_controls_are_known BEFORE INSERT ON cd_rollout_transitions FOR EACH ROW
    WHEN (new.event = 'pass_gate' AND (COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0'))::integer < 3)
    EXECUTE FUNCTION cd_refuse_unknown_controls();
DROP TRIGGER IF EXISTS cd_rollouts_controls_are_known ON cd_rollouts;
CREATE TRIGGER cd_rollouts_controls_are_known BEFORE INSERT ON cd_rollouts FOR EACH ROW
    WHEN ((COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0'))::integer < 3)
    EXECUTE FUNCTION cd_refuse_unknown_controls();
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_refuse_unknown_controls() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    control text;
    known   CONSTANT integer := COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0')::integer;
BEGIN
    SELECT CASE
        WHEN known < 2 AND TG_TABLE_NAME = 'cd_rollout_transitions' AND EXISTS (SELECT FROM cd_rollout_environments e
            JOIN cd_rollout_fleets f ON f.organization_id = e.organization_id AND f.rollout_environment_id = e.id
            WHERE e.organization_id = NEW.organization_id AND e.rollout_id = (to_jsonb(NEW) ->> 'rollout_id')::bigint)
            THEN 'the waves of a fleet'
        WHEN TG_TABLE_NAME = 'cd_rollout_environments' AND EXISTS (SELECT FROM cd_environment_driver_bindings b
            WHERE b.organization_id = NEW.organization_id AND b.id = (to_jsonb(NEW) ->> 'driver_binding_id')::bigint AND b.fleet IS NOT NULL)
            THEN 'the fleet of an environment'
        WHEN TG_TABLE_NAME = 'cd_environment_driver_bindings' AND EXISTS (SELECT FROM cd_environment_driver_bindings b
            WHERE b.organization_id = NEW.organization_id AND b.environment_id = (to_jsonb(NEW) ->> 'environment_id')::bigint AND b.fleet IS NOT NULL
            AND b.version = (SELECT max(l.version) FROM cd_environment_driver_bindings l
                WHERE l.organization_id = b.organization_id AND l.environment_id = b.environment_id))
            THEN 'the fleet of an environment'
        WHEN TG_TABLE_NAME = 'cd_policy_versions' THEN (SELECT 'the applications of a policy set' FROM cd_policy_sets s
            WHERE s.organization_id = NEW.organization_id AND s.id = (to_jsonb(NEW) ->> 'policy_set_id')::bigint AND s.application_labels IS NOT NULL)
        WHEN TG_TABLE_NAME IN ('cd_rollouts', 'cd_rollout_transitions') AND EXISTS (SELECT FROM cd_policy_sets s
            JOIN cd_policy_versions v ON v.organization_id = s.organization_id AND v.policy_set_id = s.id AND v.version = s.version
            WHERE s.organization_id = NEW.organization_id AND s.application_labels IS NOT NULL AND v.mode <> 'off')
            THEN 'policies of groups of applications'
        WHEN known > 0 OR TG_TABLE_NAME IN ('cd_rollout_environments', 'cd_environment_driver_bindings') THEN NULL -- it knows the others
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
-- What was frozen by label is frozen by the rest of the scope: a freeze stops more rather than less.
ALTER TABLE cd_freezes DROP COLUMN environment_labels;
ALTER TABLE cd_freezes DROP COLUMN application_labels;
