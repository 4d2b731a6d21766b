-- Environments, what acts in them, and what protects them.

-- +goose Up
CREATE TABLE cd_environments (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id    bigint NOT NULL CONSTRAINT cd_environments_organization REFERENCES cd_organizations (id),
    name               text NOT NULL,
    description        text NOT NULL DEFAULT '',
    tier               text NOT NULL,
    readiness          text NOT NULL DEFAULT 'pending',
    readiness_reason   text NOT NULL DEFAULT '',
    onboarding_attempt integer NOT NULL DEFAULT 0,
    workflow_ref       text,
    archived_at        timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_environments_name_is_unique UNIQUE (organization_id, name),
    CONSTRAINT cd_environments_shard UNIQUE (organization_id, id),
    CONSTRAINT cd_environments_name_is_given CHECK (name <> ''),
    CONSTRAINT cd_environments_not_ready_has_reason CHECK (readiness <> 'not_ready' OR readiness_reason <> ''),
    CONSTRAINT cd_environments_readiness_is_known CHECK (readiness IN ('pending', 'ready', 'not_ready')),
    CONSTRAINT cd_environments_tier_is_known CHECK (tier IN ('development', 'qa', 'staging', 'production'))
);
COMMENT ON COLUMN cd_environments.archived_at IS 'Since when nothing is rolled out there any more; null while it lives. What runs there is left alone.';
COMMENT ON COLUMN cd_environments.onboarding_attempt IS 'How many onboardings have been submitted; part of their workflow ids.';
COMMENT ON COLUMN cd_environments.readiness IS 'Whether it may be deployed to.';
COMMENT ON COLUMN cd_environments.workflow_ref IS 'The handle of the latest onboarding; opaque.';
CREATE TRIGGER cd_environments_touch BEFORE UPDATE ON cd_environments FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_environment_driver_bindings (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_environment_driver_bindings_organization REFERENCES cd_organizations (id),
    environment_id  bigint NOT NULL,
    version         integer NOT NULL,
    driver_ref      text NOT NULL,
    driver_config   jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_environment_driver_bindings_of_environment UNIQUE (organization_id, environment_id, id),
    CONSTRAINT cd_environment_driver_bindings_version_is_unique UNIQUE (organization_id, environment_id, version),
    CONSTRAINT cd_environment_driver_bindings_environment FOREIGN KEY (organization_id, environment_id)
        REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_environment_driver_bindings_ref_is_given CHECK (driver_ref <> ''),
    CONSTRAINT cd_environment_driver_bindings_version_counts CHECK (version > 0)
);
COMMENT ON COLUMN cd_environment_driver_bindings.driver_config IS 'Opaque to the tables; valid against the schema of the driver when it was written.';
COMMENT ON COLUMN cd_environment_driver_bindings.driver_ref IS 'name@major; opaque to the tables.';
CREATE INDEX cd_environment_driver_bindings_by_driver ON cd_environment_driver_bindings (organization_id, driver_ref, environment_id);
CREATE TRIGGER cd_environment_driver_bindings_are_append_only BEFORE UPDATE
    OR DELETE ON cd_environment_driver_bindings FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_environment_driver_bindings_are_kept BEFORE TRUNCATE ON cd_environment_driver_bindings EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_environment_agents (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_environment_agents_organization REFERENCES cd_organizations (id),
    environment_id  bigint NOT NULL,
    agent_id        bigint NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_environment_agents_once UNIQUE (organization_id, environment_id, agent_id),
    CONSTRAINT cd_environment_agents_agent FOREIGN KEY (organization_id, agent_id) REFERENCES cd_agents (organization_id, id),
    CONSTRAINT cd_environment_agents_environment FOREIGN KEY (organization_id, environment_id)
        REFERENCES cd_environments (organization_id, id)
);
COMMENT ON TABLE cd_environment_agents IS 'Which agents the configuration of an environment names: those of its own organization, or none.';
CREATE INDEX cd_environment_agents_of_agent ON cd_environment_agents (organization_id, agent_id);
CREATE TRIGGER cd_environment_agents_touch BEFORE UPDATE ON cd_environment_agents FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_environment_approvals (
    id                    bigint GENERATED ALWAYS AS IDENTITY,
    organization_id       bigint NOT NULL CONSTRAINT cd_environment_approvals_organization REFERENCES cd_organizations (id),
    environment_id        bigint NOT NULL,
    asks                  boolean NOT NULL DEFAULT true,
    reason                text NOT NULL DEFAULT '',
    quorum                integer NOT NULL,
    approver_group        text NOT NULL DEFAULT '',
    requester_may_approve boolean NOT NULL,
    expires_after_seconds integer NOT NULL DEFAULT 0,
    on_expiry             text NOT NULL DEFAULT 'reject',
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_environment_approvals_one_per_environment UNIQUE (organization_id, environment_id),
    CONSTRAINT cd_environment_approvals_environment FOREIGN KEY (organization_id, environment_id)
        REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_environment_approvals_outcome_is_known CHECK (on_expiry IN ('reject', 'approve')),
    CONSTRAINT cd_environment_approvals_quorum_counts CHECK (quorum >= 1 AND quorum <= 20),
    CONSTRAINT cd_environment_approvals_time_is_bounded CHECK (expires_after_seconds >= 0 AND expires_after_seconds <= 2592000)
);
COMMENT ON TABLE cd_environment_approvals IS 'No row, or one that does not ask: the environment asks nobody by itself. A rollout pins what there is when it is made.';
CREATE TRIGGER cd_environment_approvals_touch BEFORE UPDATE ON cd_environment_approvals FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_environment_contacts (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_environment_contacts_organization REFERENCES cd_organizations (id),
    environment_id  bigint NOT NULL,
    reachable       boolean NOT NULL,
    reason          text NOT NULL,
    since           timestamptz NOT NULL,
    observed_at     timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_environment_contacts_is_unique UNIQUE (organization_id, environment_id),
    CONSTRAINT cd_environment_contacts_environment FOREIGN KEY (organization_id, environment_id)
        REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_environment_contacts_since_is_before CHECK (since <= observed_at)
);
COMMENT ON TABLE cd_environment_contacts IS 'Whether anybody can be reached who acts in the environment, and since when.';
CREATE TRIGGER cd_environment_contacts_touch BEFORE UPDATE ON cd_environment_contacts FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_environment_protections (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_environment_protections_organization REFERENCES cd_organizations (id),
    environment_id  bigint NOT NULL,
    direct_changes  boolean NOT NULL,
    change_control  boolean NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_environment_protections_one_per_environment UNIQUE (organization_id, environment_id),
    CONSTRAINT cd_environment_protections_environment FOREIGN KEY (organization_id, environment_id)
        REFERENCES cd_environments (organization_id, id)
);
COMMENT ON TABLE cd_environment_protections IS 'No row: the environment is protected by its tier, or by its approval. cd_changes has who decided otherwise.';
COMMENT ON COLUMN cd_environment_protections.change_control IS 'A change of the environment''s controls takes a second person.';
COMMENT ON COLUMN cd_environment_protections.direct_changes IS 'Workflows that belong to no rollout may change the environment.';
CREATE TRIGGER cd_environment_protections_touch BEFORE UPDATE ON cd_environment_protections FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_archivings (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_archivings_organization REFERENCES cd_organizations (id),
    application_id  bigint,
    environment_id  bigint,
    archived        boolean NOT NULL,
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    reason          text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_archivings_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_archivings_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_archivings_are_of_one_thing CHECK (num_nonnulls(application_id, environment_id) = 1),
    CONSTRAINT cd_archivings_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system'))
);
COMMENT ON TABLE cd_archivings IS 'Who has archived and restored what, and when; append-only.';
COMMENT ON COLUMN cd_archivings.archived IS 'Whether it was archived then; otherwise it was restored.';
CREATE INDEX cd_archivings_of_application ON cd_archivings (organization_id, application_id, id DESC) WHERE application_id IS NOT NULL;
CREATE INDEX cd_archivings_of_environment ON cd_archivings (organization_id, environment_id, id DESC) WHERE environment_id IS NOT NULL;
CREATE TRIGGER cd_archivings_are_append_only BEFORE UPDATE OR DELETE ON cd_archivings FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_archivings_are_kept BEFORE TRUNCATE ON cd_archivings EXECUTE FUNCTION cd_refuse();

ALTER TABLE cd_changes ADD CONSTRAINT cd_changes_environment FOREIGN KEY (organization_id, environment_id)
    REFERENCES cd_environments (organization_id, id);

-- +goose StatementBegin
CREATE FUNCTION cd_environments_after(behind bigint, most integer) RETURNS TABLE(id bigint, organization_id bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT e.id, e.organization_id FROM cd_environments e WHERE e.id > behind ORDER BY e.id LIMIT most;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_environments_after IS 'There is one worker for all organizations.';

-- +goose Down
DROP FUNCTION cd_environments_after;
ALTER TABLE cd_changes DROP CONSTRAINT cd_changes_environment;
DROP TABLE cd_archivings;
DROP TABLE cd_environment_protections;
DROP TABLE cd_environment_contacts;
DROP TABLE cd_environment_approvals;
DROP TABLE cd_environment_agents;
DROP TABLE cd_environment_driver_bindings;
DROP TABLE cd_environments;
