-- Checks: conditions of entering an environment whose status people and systems report (D48). What a rollout needs is pinned with it.

-- +goose Up
CREATE TABLE cd_rollout_checks (
    id               bigint GENERATED ALWAYS AS IDENTITY,
    organization_id  bigint NOT NULL CONSTRAINT cd_rollout_checks_organization REFERENCES cd_organizations (id),
    rollout_id       bigint NOT NULL,
    environment_id   bigint NOT NULL,
    target           text NOT NULL CONSTRAINT cd_rollout_checks_target_is_known CHECK (target IN ('active', 'proposed')),
    key              text NOT NULL CONSTRAINT cd_rollout_checks_key_is_plain CHECK (key ~ '^[a-z0-9-]{1,63}$'),
    kind             text NOT NULL CONSTRAINT cd_rollout_checks_kind_is_known CHECK (kind IN ('status', 'timer')),
    duration_seconds integer NOT NULL CONSTRAINT cd_rollout_checks_time_is_bounded CHECK (duration_seconds BETWEEN 0 AND 2592000),
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, rollout_id, environment_id, target, key),
    CONSTRAINT cd_rollout_checks_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_checks_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id)
);
COMMENT ON TABLE cd_rollout_checks IS 'The checks of a rollout in each of its environments, as they were pinned. Rows end with the rollout.';
COMMENT ON COLUMN cd_rollout_checks.target IS 'proposed: before the environment is entered. active: of what is in it then, before the next one is entered.';
CREATE TRIGGER cd_rollout_checks_are_immutable BEFORE UPDATE OR DELETE ON cd_rollout_checks FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_checks_are_kept BEFORE TRUNCATE ON cd_rollout_checks EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_check_statuses (
    organization_id bigint NOT NULL CONSTRAINT cd_check_statuses_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    environment_id  bigint NOT NULL,
    version_set_id  bigint NOT NULL,
    key             text NOT NULL CONSTRAINT cd_check_statuses_key_is_plain CHECK (key ~ '^[a-z0-9-]{1,63}$'),
    phase           text NOT NULL CONSTRAINT cd_check_statuses_phase_is_known CHECK (phase IN ('pending', 'success', 'failure')),
    description     text NOT NULL CONSTRAINT cd_check_statuses_description_is_bounded CHECK (length(description) <= 1000),
    link            text NOT NULL CONSTRAINT cd_check_statuses_link_is_bounded CHECK (length(link) <= 2000),
    principal_type  text NOT NULL CONSTRAINT cd_check_statuses_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_check_statuses_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_check_statuses_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_check_statuses_version_set FOREIGN KEY (organization_id, version_set_id) REFERENCES cd_version_sets (organization_id, id)
);
COMMENT ON TABLE cd_check_statuses IS 'What was reported about checks; append-only. The latest for each key, subject and reporter counts; a row that repeats that is not added. A status of another version set than the one in question decides nothing. Rows are kept as the evidence of passages.';
CREATE INDEX cd_check_statuses_by_subject ON cd_check_statuses (organization_id, version_set_id, environment_id, key, id);
CREATE TRIGGER cd_check_statuses_are_append_only BEFORE UPDATE OR DELETE ON cd_check_statuses FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_check_statuses_are_kept BEFORE TRUNCATE ON cd_check_statuses EXECUTE FUNCTION cd_refuse();

-- +goose Down
DROP TABLE cd_check_statuses;
DROP TABLE cd_rollout_checks;
