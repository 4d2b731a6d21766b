-- What an application does about a rollout that failed, and what is still to be done about one (E74, D13).

-- +goose Up
CREATE TABLE cd_application_policies (
    id                     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id        bigint NOT NULL CONSTRAINT cd_application_policies_organization REFERENCES cd_organizations (id),
    application_id         bigint NOT NULL,
    rollback_on_failed     boolean NOT NULL,
    rollback_on_degraded   boolean NOT NULL,
    degraded_after_seconds integer NOT NULL CONSTRAINT cd_application_policies_wait_is_bounded CHECK (degraded_after_seconds BETWEEN 0 AND 604800),
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_application_policies_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_application_policies_one_per_application UNIQUE (organization_id, application_id)
);
COMMENT ON TABLE cd_application_policies IS 'No row: the defaults of the design, at once on failed and after 30 minutes on degraded.';
CREATE TRIGGER cd_application_policies_touch BEFORE UPDATE ON cd_application_policies FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_automatic_rollbacks (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_automatic_rollbacks_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    cause           text NOT NULL CONSTRAINT cd_automatic_rollbacks_cause_is_known CHECK (cause IN ('failed', 'degraded')),
    due_at          timestamptz NOT NULL,
    state           smallint NOT NULL DEFAULT 0 CONSTRAINT cd_automatic_rollbacks_state_is_known CHECK (state BETWEEN 0 AND 2),
    outcome         text NOT NULL DEFAULT '',
    made_rollout_id bigint,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_automatic_rollbacks_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_automatic_rollbacks_made_rollout FOREIGN KEY (organization_id, made_rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_automatic_rollbacks_once_per_rollout UNIQUE (organization_id, rollout_id),
    CONSTRAINT cd_automatic_rollbacks_made_by_one UNIQUE (organization_id, made_rollout_id),
    CONSTRAINT cd_automatic_rollbacks_done_has_made CHECK ((state = 1) = (made_rollout_id IS NOT NULL)),
    CONSTRAINT cd_automatic_rollbacks_dropped_says_why CHECK ((state = 2) = (outcome <> ''))
);
COMMENT ON COLUMN cd_automatic_rollbacks.state IS '0 pending 1 done 2 dropped (outcome says why)';
CREATE INDEX cd_automatic_rollbacks_due ON cd_automatic_rollbacks (due_at, id) WHERE state = 0;
CREATE TRIGGER cd_automatic_rollbacks_touch BEFORE UPDATE ON cd_automatic_rollbacks FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_automatic_rollbacks;
DROP TABLE cd_application_policies;
