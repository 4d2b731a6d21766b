-- Environments of many clusters (D61): labels of agents, the fleet of an environment, and the waves and targets of rollouts to it.

-- +goose Up
ALTER TABLE cd_agents ADD COLUMN labels jsonb NOT NULL DEFAULT '{}'
    CONSTRAINT cd_agents_labels_are_bounded CHECK (jsonb_typeof(labels) = 'object' AND octet_length(labels::text) <= 16000);
COMMENT ON COLUMN cd_agents.labels IS 'Names and values that the fleets of environments select agents by.';

ALTER TABLE cd_environment_driver_bindings ADD COLUMN fleet jsonb
    CONSTRAINT cd_environment_driver_bindings_fleet_is_bounded CHECK (jsonb_typeof(fleet) = 'object' AND octet_length(fleet::text) <= 64000);
COMMENT ON COLUMN cd_environment_driver_bindings.fleet IS 'Which agents the targets are, and in which waves they are deployed; null for an environment of one cluster.';

CREATE TABLE cd_rollout_fleets (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL,
    rollout_environment_id bigint NOT NULL,
    fleet           jsonb NOT NULL CONSTRAINT cd_rollout_fleets_fleet_is_one CHECK (jsonb_typeof(fleet) = 'object'),
    agents          bigint[] NOT NULL,
    waves           integer NOT NULL CONSTRAINT cd_rollout_fleets_waves_count CHECK (waves > 0),
    targets         integer NOT NULL CONSTRAINT cd_rollout_fleets_targets_count CHECK (targets > 0),
    healthy         integer NOT NULL DEFAULT 0,
    failed          integer NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, rollout_environment_id),
    CONSTRAINT cd_rollout_fleets_environment FOREIGN KEY (organization_id, rollout_environment_id) REFERENCES cd_rollout_environments (organization_id, id),
    CONSTRAINT cd_rollout_fleets_ended_are_targets CHECK (healthy >= 0 AND failed >= 0 AND healthy + failed <= targets)
);
COMMENT ON TABLE cd_rollout_fleets IS 'The fleet of an environment as a rollout has pinned it, and how many of its targets have ended.';
COMMENT ON COLUMN cd_rollout_fleets.agents IS 'Those of the configuration: what the rollout has pinned in their clusters is in each target, too.';
CREATE TRIGGER cd_rollout_fleets_touch BEFORE UPDATE ON cd_rollout_fleets FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_rollout_waves (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL,
    rollout_environment_id bigint NOT NULL,
    wave            integer NOT NULL CONSTRAINT cd_rollout_waves_wave_counts CHECK (wave > 0),
    targets         integer NOT NULL CONSTRAINT cd_rollout_waves_targets_count CHECK (targets > 0),
    healthy         integer NOT NULL DEFAULT 0,
    failed          integer NOT NULL DEFAULT 0,
    attempt         integer NOT NULL DEFAULT 0,
    paused          boolean NOT NULL DEFAULT false,
    started_at      timestamptz,
    finished_at     timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, rollout_environment_id, wave),
    CONSTRAINT cd_rollout_waves_fleet FOREIGN KEY (organization_id, rollout_environment_id) REFERENCES cd_rollout_fleets (organization_id, rollout_environment_id),
    CONSTRAINT cd_rollout_waves_ended_are_targets CHECK (healthy >= 0 AND failed >= 0 AND healthy + failed <= targets),
    CONSTRAINT cd_rollout_waves_finished_when_ended CHECK ((finished_at IS NOT NULL) = (healthy + failed = targets))
);
COMMENT ON TABLE cd_rollout_waves IS 'The waves of a rollout to a fleet.';
COMMENT ON COLUMN cd_rollout_waves.attempt IS 'How often it was let begin: once, and once more after each retry.';
COMMENT ON COLUMN cd_rollout_waves.paused IS 'Whether the journal of the rollout has it paused: neither it nor a later one begins.';
CREATE TRIGGER cd_rollout_waves_touch BEFORE UPDATE ON cd_rollout_waves FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_rollout_targets (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL,
    rollout_environment_id bigint NOT NULL,
    agent_id        bigint NOT NULL,
    name            text NOT NULL CONSTRAINT cd_rollout_targets_name_is_bounded CHECK (octet_length(name) BETWEEN 1 AND 255),
    wave            integer NOT NULL,
    state           text NOT NULL DEFAULT 'pending'
        CONSTRAINT cd_rollout_targets_state_is_known CHECK (state IN ('pending', 'deploying', 'healthy', 'failed')),
    place           bigint NOT NULL GENERATED ALWAYS AS (
        CASE state WHEN 'failed' THEN 0 WHEN 'deploying' THEN 1 WHEN 'pending' THEN 2 ELSE 3 END * 1000000000000000 + agent_id) STORED,
    attempt         integer NOT NULL DEFAULT 0,
    reason          text NOT NULL DEFAULT '' CONSTRAINT cd_rollout_targets_reason_is_bounded CHECK (octet_length(reason) <= 8000),
    started_at      timestamptz,
    finished_at     timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, rollout_environment_id, agent_id),
    CONSTRAINT cd_rollout_targets_wave FOREIGN KEY (organization_id, rollout_environment_id, wave) REFERENCES cd_rollout_waves (organization_id, rollout_environment_id, wave),
    CONSTRAINT cd_rollout_targets_agent FOREIGN KEY (organization_id, agent_id) REFERENCES cd_agents (organization_id, id),
    CONSTRAINT cd_rollout_targets_finished_when_ended CHECK ((finished_at IS NOT NULL) = (state IN ('healthy', 'failed')))
);
CREATE INDEX cd_rollout_targets_by_place ON cd_rollout_targets (organization_id, rollout_environment_id, place);
CREATE INDEX cd_rollout_targets_by_wave ON cd_rollout_targets (organization_id, rollout_environment_id, wave, place);
COMMENT ON TABLE cd_rollout_targets IS 'The targets of a rollout to a fleet: the agents that had the labels when it was created.';
COMMENT ON COLUMN cd_rollout_targets.name IS 'That of the agent, as it was then.';
COMMENT ON COLUMN cd_rollout_targets.place IS 'The order of lists: failed ones first, then those that are being deployed.';
COMMENT ON COLUMN cd_rollout_targets.attempt IS 'That of the wave in which it was deployed last.';
CREATE TRIGGER cd_rollout_targets_touch BEFORE UPDATE ON cd_rollout_targets FOR EACH ROW EXECUTE FUNCTION cd_touch();

ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'plan', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze', 'start_job', 'end_job', 'pause_wave', 'resume_wave')) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_gate_is_named,
    ADD CONSTRAINT cd_rollout_transitions_gate_is_named CHECK (event = 'break_glass' OR (event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'stop_passage', 'start_job', 'end_job', 'pause_wave', 'resume_wave')) = (gate_id IS NOT NULL)) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('plan', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze', 'start_job', 'end_job', 'pause_wave', 'resume_wave') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END) NOT VALID;
ALTER TABLE cd_rollout_transitions
    VALIDATE CONSTRAINT cd_rollout_transitions_verb_is_known,
    VALIDATE CONSTRAINT cd_rollout_transitions_gate_is_named,
    VALIDATE CONSTRAINT cd_rollout_transitions_request_changes_nothing;

-- A release that does not know fleets deploys to one cluster only, lets waves pass without beginning them, and ends a fleet with a new binding.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_refuse_unknown_controls() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    control text;
    known   CONSTANT integer := COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0')::integer;
BEGIN
    SELECT CASE
        WHEN TG_TABLE_NAME = 'cd_rollout_transitions' AND EXISTS (SELECT FROM cd_rollout_environments e
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
        WHEN known > 0 OR TG_TABLE_NAME IN ('cd_rollout_environments', 'cd_environment_driver_bindings') THEN NULL -- fleets are the only ones that it does not know
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
    WHEN (new.event = 'pass_gate' AND (COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0'))::integer < 2)
    EXECUTE FUNCTION cd_refuse_unknown_controls();
CREATE TRIGGER cd_rollout_environments_controls_are_known BEFORE INSERT ON cd_rollout_environments FOR EACH ROW
    WHEN ((COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0'))::integer < 2)
    EXECUTE FUNCTION cd_refuse_unknown_controls();
CREATE TRIGGER cd_environment_driver_bindings_controls_are_known BEFORE INSERT ON cd_environment_driver_bindings FOR EACH ROW
    WHEN ((COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0'))::integer < 2)
    EXECUTE FUNCTION cd_refuse_unknown_controls();

-- +goose Down
DROP TRIGGER cd_environment_driver_bindings_controls_are_known ON cd_environment_driver_bindings;
DROP TRIGGER cd_rollout_environments_controls_are_known ON cd_rollout_environments;
DROP TRIGGER IF EXISTS cd_rollout_transitions_controls_are_known ON cd_rollout_transitions;
CREATE TRIGGER cd_rollout_transitions_controls_are_known BEFORE INSERT ON cd_rollout_transitions FOR EACH ROW
    WHEN (new.event = 'pass_gate' AND (COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0'))::integer < 1)
    EXECUTE FUNCTION cd_refuse_unknown_controls();
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_refuse_unknown_controls() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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
-- Rows with the newer verbs stay: a journal loses nothing. The older code makes no more of them.
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'plan', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze', 'start_job', 'end_job')) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_gate_is_named,
    ADD CONSTRAINT cd_rollout_transitions_gate_is_named CHECK (event = 'break_glass' OR (event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'stop_passage', 'start_job', 'end_job')) = (gate_id IS NOT NULL)) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('plan', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze', 'start_job', 'end_job') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END) NOT VALID;
DROP TABLE cd_rollout_targets;
DROP TABLE cd_rollout_waves;
DROP TABLE cd_rollout_fleets;
ALTER TABLE cd_environment_driver_bindings DROP COLUMN fleet;
ALTER TABLE cd_agents DROP COLUMN labels;
