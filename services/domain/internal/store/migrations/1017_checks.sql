-- Checks of passages, and what is reported about them.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_refuse_last_statuses() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (SELECT count(*) FROM (
            SELECT FROM cd_check_statuses s
            WHERE s.organization_id = OLD.organization_id AND s.version_set_id = OLD.version_set_id AND s.environment_id = OLD.environment_id
              AND s.key = OLD.key AND s.principal_type = OLD.principal_type AND s.principal_id = OLD.principal_id AND s.id > OLD.id LIMIT 20
        ) later) < 20 THEN
        RAISE EXCEPTION '% of % is refused: the last 20 statuses of a key, subject and reporter are kept', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'integrity_constraint_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
    END IF;
    RETURN OLD;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_refuse_last_statuses IS 'A status may be deleted once its reporter has reported 20 later ones.';

CREATE TABLE cd_environment_checks (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_environment_checks_organization REFERENCES cd_organizations (id),
    environment_id  bigint NOT NULL,
    checks          jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, environment_id),
    CONSTRAINT cd_environment_checks_environment FOREIGN KEY (organization_id, environment_id)
        REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_environment_checks_is_an_object CHECK (jsonb_typeof(checks) = 'object'),
    CONSTRAINT cd_environment_checks_is_bounded CHECK (length((checks)::text) <= 131072)
);
COMMENT ON TABLE cd_environment_checks IS 'What an environment requires by itself: active and proposed, as in a pipeline; an empty object for nothing. A rollout pins what there is when it is created. Rows end with the environment.';
CREATE TRIGGER cd_environment_checks_touch BEFORE UPDATE ON cd_environment_checks FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_rollout_checks (
    id               bigint GENERATED ALWAYS AS IDENTITY,
    organization_id  bigint NOT NULL CONSTRAINT cd_rollout_checks_organization REFERENCES cd_organizations (id),
    rollout_id       bigint NOT NULL,
    environment_id   bigint NOT NULL,
    target           text NOT NULL,
    key              text NOT NULL,
    kind             text NOT NULL,
    duration_seconds integer NOT NULL,
    windows          jsonb,
    own              boolean NOT NULL DEFAULT false,
    config           jsonb,
    kind_digest      text,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, rollout_id, environment_id, target, key, own),
    CONSTRAINT cd_rollout_checks_bundle FOREIGN KEY (organization_id, kind_digest) REFERENCES cd_driver_bundles (organization_id, digest),
    CONSTRAINT cd_rollout_checks_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_rollout_checks_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_checks_config_is_bounded CHECK (length((config)::text) <= 262144),
    CONSTRAINT cd_rollout_checks_key_is_plain CHECK (key ~ '^[a-z0-9-]{1,63}$'),
    CONSTRAINT cd_rollout_checks_kind_is_known
        CHECK (kind IN ('status', 'timer', 'schedule', 'health') OR kind ~ '^[a-z0-9]+(-[a-z0-9]+)*@[1-9][0-9]{0,3}$'),
    CONSTRAINT cd_rollout_checks_program_is_pinned CHECK ((kind ~~ '%@%') = (kind_digest IS NOT NULL)),
    CONSTRAINT cd_rollout_checks_schedule_has_windows CHECK ((kind = 'schedule') = (windows IS NOT NULL)),
    CONSTRAINT cd_rollout_checks_target_is_known CHECK (target IN ('active', 'proposed')),
    CONSTRAINT cd_rollout_checks_time_is_bounded CHECK (duration_seconds >= 0 AND duration_seconds <= 2592000),
    CONSTRAINT cd_rollout_checks_windows_are_bounded CHECK (length((windows)::text) <= 131072)
);
COMMENT ON TABLE cd_rollout_checks IS 'The checks of a rollout in each of its environments, as they were pinned. Rows end with the rollout.';
COMMENT ON COLUMN cd_rollout_checks.config IS 'The configuration of a check whose kind is a bundle, as its author wrote it.';
COMMENT ON COLUMN cd_rollout_checks.kind_digest IS 'The bundle of the kind, as it was when the rollout was created; null for the kinds that the service evaluates itself.';
COMMENT ON COLUMN cd_rollout_checks.own IS 'Whether the environment requires it; otherwise the pipeline does.';
COMMENT ON COLUMN cd_rollout_checks.target IS 'proposed: before the environment is entered. active: of what is in it then, before the next one is entered.';
COMMENT ON COLUMN cd_rollout_checks.windows IS 'When a schedule is open: allow and exclude, each with cron, duration, time_zone and description; and time_zone. Null for other kinds.';
CREATE TRIGGER cd_rollout_checks_are_immutable BEFORE UPDATE OR DELETE ON cd_rollout_checks FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_checks_are_kept BEFORE TRUNCATE ON cd_rollout_checks EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_check_statuses (
    organization_id bigint NOT NULL CONSTRAINT cd_check_statuses_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    environment_id  bigint NOT NULL,
    version_set_id  bigint NOT NULL,
    key             text NOT NULL,
    phase           text NOT NULL,
    description     text NOT NULL,
    link            text NOT NULL,
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    observed_at     timestamptz NOT NULL DEFAULT now(),
    asks            boolean NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_check_statuses_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_check_statuses_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_check_statuses_version_set FOREIGN KEY (organization_id, version_set_id) REFERENCES cd_version_sets (organization_id, id),
    CONSTRAINT cd_check_statuses_description_is_bounded CHECK (length(description) <= 1000),
    CONSTRAINT cd_check_statuses_key_is_plain CHECK (key ~ '^[a-z0-9-]{1,63}$'),
    CONSTRAINT cd_check_statuses_link_is_bounded CHECK (length(link) <= 2000),
    CONSTRAINT cd_check_statuses_phase_is_known CHECK (phase IN ('pending', 'success', 'failure')),
    CONSTRAINT cd_check_statuses_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system'))
);
COMMENT ON TABLE cd_check_statuses IS 'What was reported about checks; a row is never changed. The latest for each key, subject and reporter counts; a row that repeats that is not added. A status of another version set than the one in question decides nothing. Rows end when their reporter has reported 20 later ones about the same key and subject; what satisfied a passage is in the journal of its rollout.';
COMMENT ON COLUMN cd_check_statuses.asks IS 'The program of the check cannot decide and asks a person. A status of a person after it decides.';
COMMENT ON COLUMN cd_check_statuses.observed_at IS 'When the reporter found it out.';
CREATE INDEX cd_check_statuses_by_subject ON cd_check_statuses (organization_id, version_set_id, environment_id, key, id);
CREATE TRIGGER cd_check_statuses_are_append_only BEFORE UPDATE ON cd_check_statuses FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_check_statuses_are_kept BEFORE TRUNCATE ON cd_check_statuses EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_check_statuses_end BEFORE DELETE ON cd_check_statuses FOR EACH ROW EXECUTE FUNCTION cd_refuse_last_statuses();

CREATE TABLE cd_check_runs (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_check_runs_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    environment_id  bigint NOT NULL,
    target          text NOT NULL,
    key             text NOT NULL,
    own             boolean NOT NULL,
    number          integer NOT NULL,
    workflow_ref    text,
    ended_at        timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_check_runs_are_numbered UNIQUE (organization_id, rollout_id, environment_id, target, key, own, number),
    CONSTRAINT cd_check_runs_check FOREIGN KEY (organization_id, rollout_id, environment_id, target, key, own)
        REFERENCES cd_rollout_checks (organization_id, rollout_id, environment_id, target, key, own),
    CONSTRAINT cd_check_runs_are_counted_from_one CHECK (number >= 1)
);
COMMENT ON TABLE cd_check_runs IS 'Runs of the programs of checks. What a run has reported is among the statuses, under its number; only what the latest run of a check reports counts for its rollout. Rows end with the rollout.';
COMMENT ON COLUMN cd_check_runs.ended_at IS 'Since when the run reports nothing any more: its program has ended, or the check is not required any more.';
COMMENT ON COLUMN cd_check_runs.number IS 'Counts the runs of the check, from 1: another one is opened when a check whose run has ended is to be evaluated again.';
CREATE UNIQUE INDEX cd_check_runs_one_is_open ON cd_check_runs (organization_id, rollout_id, environment_id, target, key, own)
    WHERE ended_at IS NULL;
CREATE TRIGGER cd_check_runs_touch BEFORE UPDATE ON cd_check_runs FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_forget_statuses(latest bigint) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH made AS (
        SELECT * FROM cd_check_statuses WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND id = latest
    ), old AS (
        SELECT s.organization_id, s.id FROM made m JOIN cd_check_statuses s
          ON s.organization_id = m.organization_id AND s.version_set_id = m.version_set_id AND s.environment_id = m.environment_id AND s.key = m.key
         AND s.principal_type = m.principal_type AND s.principal_id = m.principal_id
        ORDER BY s.id DESC OFFSET 20
    ), gone AS (
        DELETE FROM cd_check_statuses s USING old WHERE s.organization_id = old.organization_id AND s.id = old.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_statuses IS 'Deletes what the reporter of a status has reported about its key and subject before the last 20.';

-- +goose Down
DROP FUNCTION cd_forget_statuses;
DROP TABLE cd_check_runs;
DROP TABLE cd_check_statuses;
DROP TABLE cd_rollout_checks;
DROP TABLE cd_environment_checks;
DROP FUNCTION cd_refuse_last_statuses;
