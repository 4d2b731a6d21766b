-- Rollouts: a version set that is promoted through environments, with a deployment for each service.

-- +goose Up
CREATE TABLE cd_rollouts (
    id                 bigint GENERATED ALWAYS AS IDENTITY,
    organization_id    bigint NOT NULL CONSTRAINT cd_rollouts_organization REFERENCES cd_organizations (id),
    application_id     bigint NOT NULL,
    version_set_id     bigint NOT NULL,
    flow_definition_id bigint NOT NULL,
    workflow_ref       text,
    state              text NOT NULL DEFAULT 'pending',
    started_at         timestamptz,
    finished_at        timestamptz,
    traceparent        text,
    asked              boolean NOT NULL DEFAULT false,
    rollback_of        bigint,
    passages           boolean NOT NULL DEFAULT false,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_rollouts_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_rollouts_flow_definition FOREIGN KEY (organization_id, application_id, flow_definition_id)
        REFERENCES cd_application_flow_definitions (organization_id, application_id, id),
    CONSTRAINT cd_rollouts_rollback_of FOREIGN KEY (organization_id, rollback_of) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollouts_version_set FOREIGN KEY (organization_id, application_id, version_set_id)
        REFERENCES cd_version_sets (organization_id, application_id, id),
    CONSTRAINT cd_rollouts_finished_when_ended CHECK ((state IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT cd_rollouts_rolls_back_an_earlier_one CHECK (rollback_of < id),
    CONSTRAINT cd_rollouts_state_is_known CHECK (state IN ('pending', 'in_progress', 'paused', 'completed', 'failed', 'cancelled')),
    CONSTRAINT cd_rollouts_traceparent_is_given CHECK (traceparent <> '')
);
COMMENT ON COLUMN cd_rollouts.asked IS 'Its journal has a request for an approval, answered or not.';
COMMENT ON COLUMN cd_rollouts.passages IS 'Nothing of it advances beyond a passage that was not granted. False for rollouts that were created by releases whose programs requested approvals themselves.';
COMMENT ON COLUMN cd_rollouts.rollback_of IS 'The rollout that it takes back; null for one that takes none back.';
COMMENT ON COLUMN cd_rollouts.workflow_ref IS 'The handle of the workflow that drives it; opaque; null until it has been handed over.';
CREATE INDEX cd_rollouts_active ON cd_rollouts (organization_id, id) WHERE state IN ('pending', 'in_progress', 'paused');
CREATE INDEX cd_rollouts_asking ON cd_rollouts (organization_id, id) WHERE asked AND state IN ('pending', 'in_progress', 'paused');
CREATE INDEX cd_rollouts_by_application ON cd_rollouts (organization_id, application_id, id DESC);
CREATE INDEX cd_rollouts_by_finish ON cd_rollouts (organization_id, COALESCE(finished_at, '9999-12-31 00:00:00+00'::timestamptz), id);
CREATE INDEX cd_rollouts_by_rolled_back ON cd_rollouts (organization_id, rollback_of, id DESC) WHERE rollback_of IS NOT NULL;
CREATE INDEX cd_rollouts_by_version_set ON cd_rollouts (organization_id, version_set_id, id);
CREATE INDEX cd_rollouts_of_application_by_finish ON cd_rollouts (organization_id, application_id, finished_at, id);
CREATE UNIQUE INDEX cd_rollouts_one_active_per_application ON cd_rollouts (organization_id, application_id)
    WHERE state IN ('pending', 'in_progress', 'paused');
CREATE TRIGGER cd_rollouts_are_kept BEFORE DELETE ON cd_rollouts FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollouts_controls_are_known BEFORE INSERT ON cd_rollouts FOR EACH ROW
    WHEN ((COALESCE(NULLIF(current_setting('lockstep.controls', true), ''), '0'))::integer < 1)
    EXECUTE FUNCTION cd_refuse_unknown_controls();
CREATE TRIGGER cd_rollouts_ended_is_final BEFORE UPDATE ON cd_rollouts FOR EACH ROW
    WHEN (old.state IN ('completed', 'failed', 'cancelled') AND new.state <> old.state) EXECUTE FUNCTION cd_refuse_change_of_ended();
CREATE TRIGGER cd_rollouts_pins_are_immutable BEFORE UPDATE ON cd_rollouts FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'application_id', 'version_set_id', 'flow_definition_id',
    'rollback_of', 'passages', 'created_at');
CREATE TRIGGER cd_rollouts_touch BEFORE UPDATE ON cd_rollouts FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_rollout_environments (
    id                      bigint GENERATED ALWAYS AS IDENTITY,
    organization_id         bigint NOT NULL CONSTRAINT cd_rollout_environments_organization REFERENCES cd_organizations (id),
    rollout_id              bigint NOT NULL,
    environment_id          bigint NOT NULL,
    "position"              integer NOT NULL,
    driver_binding_id       bigint NOT NULL,
    driver_digest           text NOT NULL,
    previous_version_set_id bigint,
    state                   text NOT NULL DEFAULT 'pending',
    started_at              timestamptz,
    finished_at             timestamptz,
    weights                 jsonb NOT NULL DEFAULT '[]',
    skips_weights           text NOT NULL DEFAULT '',
    created_at              timestamptz NOT NULL DEFAULT now(),
    updated_at              timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_rollout_environments_environment_is_unique UNIQUE (organization_id, rollout_id, environment_id),
    CONSTRAINT cd_rollout_environments_position_is_unique UNIQUE (organization_id, rollout_id, "position"),
    CONSTRAINT cd_rollout_environments_driver_binding FOREIGN KEY (organization_id, environment_id, driver_binding_id)
        REFERENCES cd_environment_driver_bindings (organization_id, environment_id, id),
    CONSTRAINT cd_rollout_environments_driver_bundle FOREIGN KEY (organization_id, driver_digest)
        REFERENCES cd_driver_bundles (organization_id, digest),
    CONSTRAINT cd_rollout_environments_environment FOREIGN KEY (organization_id, environment_id)
        REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_rollout_environments_previous_version_set FOREIGN KEY (organization_id, previous_version_set_id)
        REFERENCES cd_version_sets (organization_id, id),
    CONSTRAINT cd_rollout_environments_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_environments_finished_when_ended
        CHECK ((state IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT cd_rollout_environments_position_counts CHECK ("position" > 0),
    CONSTRAINT cd_rollout_environments_skips_weights_is_known
        CHECK (skips_weights IN ('', 'first_deploy', 'unchanged', 'promote_full', 'no_gates')),
    CONSTRAINT cd_rollout_environments_state_is_known
        CHECK (state IN ('pending', 'in_progress', 'paused', 'completed', 'failed', 'cancelled'))
);
COMMENT ON COLUMN cd_rollout_environments.driver_digest IS 'The bundle that this rollout runs here, to the byte.';
COMMENT ON COLUMN cd_rollout_environments.previous_version_set_id IS 'The set of the last rollout that completed here: what is replaced. NULL while none has.';
COMMENT ON COLUMN cd_rollout_environments.skips_weights IS 'Why the rollout will not stop at them; their conditions then apply at the entrance. Empty if it will.';
COMMENT ON COLUMN cd_rollout_environments.weights IS 'The weights at which the pipeline stops here, rising: [{"weight": percent, "soak_seconds": seconds}].';
CREATE INDEX cd_rollout_environments_by_environment ON cd_rollout_environments (organization_id, environment_id, rollout_id DESC);
CREATE TRIGGER cd_rollout_environments_are_kept BEFORE DELETE ON cd_rollout_environments FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_environments_ended_is_final BEFORE UPDATE ON cd_rollout_environments FOR EACH ROW
    WHEN (old.state IN ('completed', 'failed', 'cancelled') AND new.state <> old.state) EXECUTE FUNCTION cd_refuse_change_of_ended();
CREATE TRIGGER cd_rollout_environments_pins_are_immutable BEFORE UPDATE ON cd_rollout_environments FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'rollout_id', 'environment_id', 'position', 'driver_binding_id',
    'driver_digest', 'previous_version_set_id', 'weights', 'skips_weights', 'created_at');
CREATE TRIGGER cd_rollout_environments_touch BEFORE UPDATE ON cd_rollout_environments FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_rollout_places (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_places_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    environment_id  bigint NOT NULL,
    places          jsonb NOT NULL,
    weights         integer[] NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_rollout_places_one_per_environment UNIQUE (organization_id, rollout_id, environment_id),
    CONSTRAINT cd_rollout_places_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_rollout_places_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_places_are_a_list CHECK (jsonb_typeof(places) = 'array')
);
COMMENT ON TABLE cd_rollout_places IS 'What the passage of an environment opens for a rollout; no row for rollouts of earlier releases.';
COMMENT ON COLUMN cd_rollout_places.places IS 'Parts of clusters and repositories, as in the event com.gitlab.cd.rollout.passage_granted.';
COMMENT ON COLUMN cd_rollout_places.weights IS 'The weights at which the rollout stops there, in percent: each needs a passage of its own.';
CREATE TRIGGER cd_rollout_places_are_immutable BEFORE UPDATE OR DELETE ON cd_rollout_places FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_places_are_kept BEFORE TRUNCATE ON cd_rollout_places EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_rollout_skips (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_skips_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    environment_id  bigint NOT NULL,
    cause           text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_rollout_skips_once UNIQUE (organization_id, rollout_id, environment_id),
    CONSTRAINT cd_rollout_skips_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_rollout_skips_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_skips_cause_is_known CHECK (cause IN ('unchanged', 'excluded'))
);
COMMENT ON TABLE cd_rollout_skips IS 'Environments of its pipeline that a rollback does not go to: it has no rollout environment there.';
COMMENT ON COLUMN cd_rollout_skips.cause IS 'unchanged: its version set is live there already. excluded: by request.';
CREATE TRIGGER cd_rollout_skips_are_immutable BEFORE UPDATE OR DELETE ON cd_rollout_skips FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_skips_are_kept BEFORE TRUNCATE ON cd_rollout_skips EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_rollout_policies (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL,
    rollout_id      bigint NOT NULL,
    policy_set_id   bigint NOT NULL,
    version         integer NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, rollout_id, policy_set_id),
    CONSTRAINT cd_rollout_policies_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id)
);
COMMENT ON TABLE cd_rollout_policies IS 'The versions of the policy sets that a rollout was created with: they count until it ends, beside the latest ones. Rows end with the rollout.';
CREATE TRIGGER cd_rollout_policies_are_immutable BEFORE UPDATE OR DELETE ON cd_rollout_policies FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_policies_are_kept BEFORE TRUNCATE ON cd_rollout_policies EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_deployments (
    id                     bigint GENERATED ALWAYS AS IDENTITY,
    organization_id        bigint NOT NULL CONSTRAINT cd_deployments_organization REFERENCES cd_organizations (id),
    rollout_environment_id bigint NOT NULL,
    service_id             bigint NOT NULL,
    state                  text NOT NULL DEFAULT 'pending',
    started_at             timestamptz,
    finished_at            timestamptz,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_deployments_service_is_unique UNIQUE (organization_id, rollout_environment_id, service_id),
    CONSTRAINT cd_deployments_rollout_environment FOREIGN KEY (organization_id, rollout_environment_id)
        REFERENCES cd_rollout_environments (organization_id, id),
    CONSTRAINT cd_deployments_service FOREIGN KEY (organization_id, service_id) REFERENCES cd_services (organization_id, id),
    CONSTRAINT cd_deployments_finished_when_ended
        CHECK ((state IN ('healthy', 'degraded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT cd_deployments_state_is_known CHECK (state IN ('pending', 'deploying', 'healthy', 'degraded', 'failed', 'cancelled'))
);
CREATE TRIGGER cd_deployments_are_kept BEFORE DELETE ON cd_deployments FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_deployments_ended_is_final BEFORE UPDATE ON cd_deployments FOR EACH ROW
    WHEN (old.state IN ('healthy', 'degraded', 'failed', 'cancelled') AND new.state <> old.state)
    EXECUTE FUNCTION cd_refuse_change_of_ended();
CREATE TRIGGER cd_deployments_pins_are_immutable BEFORE UPDATE ON cd_deployments FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'rollout_environment_id', 'service_id', 'created_at');
CREATE TRIGGER cd_deployments_touch BEFORE UPDATE ON cd_deployments FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_deployment_snapshots (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_deployment_snapshots_organization REFERENCES cd_organizations (id),
    deployment_id   bigint NOT NULL,
    commit_sha      text NOT NULL,
    manifest_digest text NOT NULL,
    parameters      jsonb NOT NULL,
    changes         jsonb NOT NULL DEFAULT '[]',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_deployment_snapshots_one_per_deployment UNIQUE (organization_id, deployment_id),
    CONSTRAINT cd_deployment_snapshots_deployment FOREIGN KEY (organization_id, deployment_id)
        REFERENCES cd_deployments (organization_id, id),
    CONSTRAINT cd_deployment_snapshots_commit_is_given CHECK (commit_sha <> '')
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
COMMENT ON TABLE cd_deployment_snapshots IS 'What exactly was deployed. Never a secret.';
COMMENT ON COLUMN cd_deployment_snapshots.changes IS 'What the commit changed for this deployment, file by file; empty too for drivers that do not tell.';
CREATE INDEX cd_deployment_snapshots_by_commit ON cd_deployment_snapshots (organization_id, commit_sha);
CREATE TRIGGER cd_deployment_snapshots_are_immutable BEFORE UPDATE OR DELETE ON cd_deployment_snapshots FOR EACH ROW
    EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_deployment_snapshots_are_kept BEFORE TRUNCATE ON cd_deployment_snapshots EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_deployment_links (
    organization_id bigint NOT NULL CONSTRAINT cd_deployment_links_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    deployment_id   bigint NOT NULL,
    name            text NOT NULL,
    namespace       text NOT NULL,
    url             text NOT NULL,
    status          text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, deployment_id),
    CONSTRAINT cd_deployment_links_deployment FOREIGN KEY (organization_id, deployment_id) REFERENCES cd_deployments (organization_id, id),
    CONSTRAINT cd_deployment_links_name_is_given CHECK (length(name) >= 1 AND length(name) <= 255),
    CONSTRAINT cd_deployment_links_namespace_is_bounded CHECK (length(namespace) <= 255),
    CONSTRAINT cd_deployment_links_status_is_bounded CHECK (length(status) <= 500),
    CONSTRAINT cd_deployment_links_url_is_one CHECK (url = '' OR url ~ '^https?://[^[:space:]]+$' AND length(url) <= 2048)
);
COMMENT ON TABLE cd_deployment_links IS 'What a deployment is outside of Lockstep, as its program has reported it last: one row for each at most, kept with the deployment.';
COMMENT ON COLUMN cd_deployment_links.name IS 'What it is called there, such as #17.';
COMMENT ON COLUMN cd_deployment_links.namespace IS 'The namespace there; empty for none.';
COMMENT ON COLUMN cd_deployment_links.status IS 'What it says of itself, such as merged by ann; empty for nothing.';
COMMENT ON COLUMN cd_deployment_links.url IS 'The page for people; empty for none.';
CREATE TRIGGER cd_deployment_links_touch BEFORE UPDATE ON cd_deployment_links FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_rollout_closings (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_closings_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    reason          text NOT NULL DEFAULT '',
    due_at          timestamptz NOT NULL,
    settled         boolean NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_rollout_closings_once_per_rollout UNIQUE (organization_id, rollout_id),
    CONSTRAINT cd_rollout_closings_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id)
);
COMMENT ON TABLE cd_rollout_closings IS 'Events come in any order: a rollout whose end was heard of before everything under it waits here for the rest, for a while.';
COMMENT ON COLUMN cd_rollout_closings.reason IS 'Why it fails, should it not have ended by itself until then.';
CREATE INDEX cd_rollout_closings_due ON cd_rollout_closings (due_at, id) WHERE NOT settled;
CREATE INDEX cd_rollout_closings_settled ON cd_rollout_closings (organization_id, updated_at) WHERE settled;
CREATE TRIGGER cd_rollout_closings_touch BEFORE UPDATE ON cd_rollout_closings FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_rollout_deadlines (
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_deadlines_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    rollout_id      bigint NOT NULL,
    kind            text NOT NULL,
    environment_id  bigint,
    gate_id         text NOT NULL DEFAULT '',
    seconds         integer NOT NULL,
    action          text NOT NULL,
    counts_waiting  boolean NOT NULL,
    principal_type  text NOT NULL DEFAULT 'system',
    principal_id    bigint,
    reason          text NOT NULL DEFAULT '',
    started_at      timestamptz,
    due_at          timestamptz,
    outcome         text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_rollout_deadlines_environment FOREIGN KEY (organization_id, environment_id)
        REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_rollout_deadlines_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_deadlines_action_is_known CHECK (action IN ('fail', 'abort', 'cancel')),
    CONSTRAINT cd_rollout_deadlines_environment_has_a_gate
        CHECK ((kind = 'environment') = (environment_id IS NOT NULL) AND (kind = 'environment') = (gate_id <> '')),
    CONSTRAINT cd_rollout_deadlines_kind_is_known CHECK (kind IN ('rollout', 'environment', 'abort')),
    CONSTRAINT cd_rollout_deadlines_outcome_is_known CHECK (outcome IN ('', 'met', 'failed', 'aborted', 'cancelled', 'withdrawn')),
    CONSTRAINT cd_rollout_deadlines_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    CONSTRAINT cd_rollout_deadlines_runs_before_it_is_due CHECK (due_at IS NULL OR started_at IS NOT NULL),
    CONSTRAINT cd_rollout_deadlines_seconds_are_bounded CHECK (seconds >= 1 AND seconds <= 2592000)
);
COMMENT ON TABLE cd_rollout_deadlines IS 'How long a rollout, an environment of it, or an abort that is to end it, may take. Rows are kept.';
COMMENT ON COLUMN cd_rollout_deadlines.action IS 'What becomes of the rollout when it passes.';
COMMENT ON COLUMN cd_rollout_deadlines.counts_waiting IS 'Whether time counts during which the rollout waits for people.';
COMMENT ON COLUMN cd_rollout_deadlines.due_at IS 'When it is looked at: never later than it passes. Null before it runs, and while the rollout waits for people and that does not count.';
COMMENT ON COLUMN cd_rollout_deadlines.gate_id IS 'The name of the environment, which is that of its entrance; empty for other kinds.';
COMMENT ON COLUMN cd_rollout_deadlines.outcome IS 'Empty while it is open.';
COMMENT ON COLUMN cd_rollout_deadlines.principal_type IS 'Who asked for what happens when it passes; system for the pipeline.';
COMMENT ON COLUMN cd_rollout_deadlines.reason IS 'The reason of the principal.';
COMMENT ON COLUMN cd_rollout_deadlines.started_at IS 'Since when it runs: an environment from the grant of its entrance. A retry begins anew.';
CREATE INDEX cd_rollout_deadlines_by_rollout ON cd_rollout_deadlines (organization_id, rollout_id);
CREATE INDEX cd_rollout_deadlines_due ON cd_rollout_deadlines (due_at, id) WHERE outcome = '' AND due_at IS NOT NULL;
CREATE INDEX cd_rollout_deadlines_due_in ON cd_rollout_deadlines (organization_id, due_at, id) WHERE outcome = '' AND due_at IS NOT NULL;
CREATE UNIQUE INDEX cd_rollout_deadlines_once ON cd_rollout_deadlines (organization_id, rollout_id, kind, gate_id)
    WHERE outcome = '' OR kind <> 'abort';
CREATE TRIGGER cd_rollout_deadlines_touch BEFORE UPDATE ON cd_rollout_deadlines FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_rollout_previews (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_previews_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    version_set_id  bigint NOT NULL,
    state           text NOT NULL DEFAULT 'pending',
    reason          text NOT NULL DEFAULT '',
    environments    jsonb NOT NULL DEFAULT '[]',
    workflow_ref    text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_rollout_previews_version_set FOREIGN KEY (organization_id, application_id, version_set_id)
        REFERENCES cd_version_sets (organization_id, application_id, id),
    CONSTRAINT cd_rollout_previews_failed_says_why CHECK ((state = 'failed') = (reason <> '')),
    CONSTRAINT cd_rollout_previews_state_is_known CHECK (state IN ('pending', 'made', 'failed'))
);
COMMENT ON TABLE cd_rollout_previews IS 'What a rollout of a version set would have changed, had it been begun when this was asked. Nothing is decided by it.';
CREATE INDEX cd_rollout_previews_by_age ON cd_rollout_previews (organization_id, created_at);
CREATE TRIGGER cd_rollout_previews_question_is_immutable BEFORE UPDATE ON cd_rollout_previews FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'application_id', 'version_set_id', 'created_at');
CREATE TRIGGER cd_rollout_previews_touch BEFORE UPDATE ON cd_rollout_previews FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_environment_pins (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_environment_pins_organization REFERENCES cd_organizations (id),
    environment_id  bigint NOT NULL,
    pinned          boolean NOT NULL,
    reason          text NOT NULL,
    since           timestamptz NOT NULL,
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, environment_id),
    CONSTRAINT cd_environment_pins_environment FOREIGN KEY (organization_id, environment_id)
        REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_environment_pins_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    CONSTRAINT cd_environment_pins_reason_is_given CHECK (reason <> '' OR NOT pinned)
);
COMMENT ON TABLE cd_environment_pins IS 'Environments in which only people change what runs. No row, or one that is not pinned: automation may, too.';
CREATE TRIGGER cd_environment_pins_touch BEFORE UPDATE ON cd_environment_pins FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_closings(at timestamptz) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_rollout_closings WHERE NOT settled AND due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_closings IS 'There is one worker for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_deadlines(at timestamptz) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_rollout_deadlines WHERE outcome = '' AND due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_deadlines IS 'There is one worker for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_previews(before timestamptz, at_most integer) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT organization_id, id FROM cd_rollout_previews
        WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND created_at < before ORDER BY created_at LIMIT at_most
    ), gone AS (DELETE FROM cd_rollout_previews p USING old WHERE p.organization_id = old.organization_id AND p.id = old.id RETURNING p.id)
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_previews IS 'Previews are no record: nothing is decided by them, and nothing refers to them.';

-- +goose Down
DROP FUNCTION cd_forget_previews;
DROP FUNCTION cd_organizations_with_due_deadlines;
DROP FUNCTION cd_organizations_with_due_closings;
DROP TABLE cd_environment_pins;
DROP TABLE cd_rollout_previews;
DROP TABLE cd_rollout_deadlines;
DROP TABLE cd_rollout_closings;
DROP TABLE cd_deployment_links;
DROP TABLE cd_deployment_snapshots;
DROP TABLE cd_deployments;
DROP TABLE cd_rollout_policies;
DROP TABLE cd_rollout_skips;
DROP TABLE cd_rollout_places;
DROP TABLE cd_rollout_environments;
DROP TABLE cd_rollouts;
