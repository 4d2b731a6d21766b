-- Policies (D51): named sets of Cedar policies in versions, what a rollout has pinned of them, and what was decided by them.

-- +goose Up
CREATE TABLE cd_policy_sets (
    organization_id bigint NOT NULL CONSTRAINT cd_policy_sets_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    name            text NOT NULL CONSTRAINT cd_policy_sets_name_is_plain CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    application_id  bigint,
    environment_id  bigint,
    version         integer NOT NULL CONSTRAINT cd_policy_sets_version_counts CHECK (version >= 1),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_policy_sets_name_is_unique UNIQUE (organization_id, name),
    CONSTRAINT cd_policy_sets_scope_is_one CHECK (application_id IS NULL OR environment_id IS NULL),
    CONSTRAINT cd_policy_sets_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_policy_sets_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id)
);
COMMENT ON TABLE cd_policy_sets IS 'Named sets of policies, each of the organization, of one application or of one environment. Rows are kept: they are few, and decisions refer to them.';
COMMENT ON COLUMN cd_policy_sets.version IS 'The latest version, which is in force as its mode says.';
CREATE TRIGGER cd_policy_sets_touch BEFORE UPDATE ON cd_policy_sets FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_policy_versions (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL,
    policy_set_id   bigint NOT NULL,
    version         integer NOT NULL CONSTRAINT cd_policy_versions_version_counts CHECK (version >= 1),
    mode            text NOT NULL CONSTRAINT cd_policy_versions_mode_is_known CHECK (mode IN ('enforce', 'dry_run', 'off')),
    time_zone       text NOT NULL CONSTRAINT cd_policy_versions_zone_is_named CHECK (length(time_zone) BETWEEN 1 AND 100),
    text            text NOT NULL CONSTRAINT cd_policy_versions_text_is_bounded CHECK (octet_length(text) BETWEEN 1 AND 65536),
    reason          text NOT NULL CONSTRAINT cd_policy_versions_reason_is_given CHECK (reason <> ''),
    principal_type  text NOT NULL CONSTRAINT cd_policy_versions_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, policy_set_id, version),
    CONSTRAINT cd_policy_versions_set FOREIGN KEY (organization_id, policy_set_id) REFERENCES cd_policy_sets (organization_id, id)
);
COMMENT ON TABLE cd_policy_versions IS 'The versions of policy sets; append-only. A change of the mode is a version, too. Rows are kept: decisions refer to them.';
COMMENT ON COLUMN cd_policy_versions.mode IS 'enforce: it counts. dry_run: what it would decide is recorded. off: it is not evaluated.';
COMMENT ON COLUMN cd_policy_versions.time_zone IS 'Where the days and hours of context.time are, such as Europe/Berlin.';
CREATE TRIGGER cd_policy_versions_are_append_only BEFORE UPDATE OR DELETE ON cd_policy_versions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_policy_versions_are_kept BEFORE TRUNCATE ON cd_policy_versions EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_rollout_policies (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL,
    rollout_id      bigint NOT NULL,
    policy_set_id   bigint NOT NULL,
    version         integer NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, rollout_id, policy_set_id),
    CONSTRAINT cd_rollout_policies_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_policies_version FOREIGN KEY (organization_id, policy_set_id, version) REFERENCES cd_policy_versions (organization_id, policy_set_id, version)
);
COMMENT ON TABLE cd_rollout_policies IS 'The versions of the policy sets that a rollout was created with: they count until it ends, beside the latest ones. Rows end with the rollout.';
CREATE TRIGGER cd_rollout_policies_are_immutable BEFORE UPDATE OR DELETE ON cd_rollout_policies FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_policies_are_kept BEFORE TRUNCATE ON cd_rollout_policies EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_policy_decisions (
    organization_id bigint NOT NULL CONSTRAINT cd_policy_decisions_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    rollout_id      bigint NOT NULL,
    gate_id         text NOT NULL,
    verdict         text NOT NULL CONSTRAINT cd_policy_decisions_verdict_is_known CHECK (verdict IN ('allow', 'needs_approval', 'deny')),
    decision        jsonb NOT NULL CONSTRAINT cd_policy_decisions_decision_is_bounded CHECK (length(decision::text) <= 1048576),
    request         jsonb NOT NULL CONSTRAINT cd_policy_decisions_request_is_bounded CHECK (length(request::text) <= 131072),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_policy_decisions_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id)
);
COMMENT ON TABLE cd_policy_decisions IS 'What policies decided about rollouts and their passages, with what they were asked; a decision that repeats the one before it about the same gate is not added. Append-only; rows are kept as the evidence of passages, and grow with the history.';
COMMENT ON COLUMN cd_policy_decisions.gate_id IS 'The passage; empty for the creation of the rollout.';
COMMENT ON COLUMN cd_policy_decisions.decision IS 'The verdict, the digest of the policies, and what each of them decided.';
COMMENT ON COLUMN cd_policy_decisions.request IS 'Everything that the policies could ask of.';
CREATE INDEX cd_policy_decisions_by_rollout ON cd_policy_decisions (organization_id, rollout_id, gate_id, id);
CREATE INDEX cd_policy_decisions_of_rollout ON cd_policy_decisions (organization_id, rollout_id, id);
CREATE INDEX cd_policy_decisions_by_time ON cd_policy_decisions (organization_id, created_at, id);
CREATE TRIGGER cd_policy_decisions_are_append_only BEFORE UPDATE OR DELETE ON cd_policy_decisions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_policy_decisions_are_kept BEFORE TRUNCATE ON cd_policy_decisions EXECUTE FUNCTION cd_refuse();

ALTER TABLE cd_passage_stops
    DROP CONSTRAINT cd_passage_stops_kind_is_known,
    ADD CONSTRAINT cd_passage_stops_kind_is_known CHECK (kind IN ('freeze', 'veto', 'pin', 'policy'));
COMMENT ON COLUMN cd_passage_stops.control_id IS 'The freeze, the veto, or the environment that is pinned; 0 for policies.';

-- +goose Down
DELETE FROM cd_passage_stops WHERE kind = 'policy';
ALTER TABLE cd_passage_stops
    DROP CONSTRAINT cd_passage_stops_kind_is_known,
    ADD CONSTRAINT cd_passage_stops_kind_is_known CHECK (kind IN ('freeze', 'veto', 'pin'));
COMMENT ON COLUMN cd_passage_stops.control_id IS 'The freeze, the veto, or the environment that is pinned.';
DROP TABLE cd_policy_decisions;
DROP TABLE cd_rollout_policies;
DROP TABLE cd_policy_versions;
DROP TABLE cd_policy_sets;
