-- What standing observers see, rollout or not (R46, E58): the latest word on each thing, last write wins, not history.

-- +goose Up
ALTER TABLE cd_service_environment_healths ADD COLUMN reason text NOT NULL DEFAULT '';
ALTER TABLE cd_service_environment_healths ADD COLUMN since timestamptz;
UPDATE cd_service_environment_healths SET since = observed_at;
ALTER TABLE cd_service_environment_healths ALTER COLUMN since SET NOT NULL;
ALTER TABLE cd_service_environment_healths ADD CONSTRAINT cd_service_environment_healths_since_is_before CHECK (since <= observed_at);
COMMENT ON COLUMN cd_service_environment_healths.since IS 'The first observation in a row with this health: what the clock of a policy counts from (D13).';

-- What hangs below one names it together with its organization.
ALTER TABLE cd_application_environments ADD CONSTRAINT cd_application_environments_shard UNIQUE (organization_id, id);

CREATE TABLE cd_application_environment_reconciliations (
    id                         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id            bigint NOT NULL CONSTRAINT cd_application_environment_reconciliations_organization REFERENCES cd_organizations (id),
    application_environment_id bigint NOT NULL,
    revision                   text NOT NULL,
    expected_revision          text NOT NULL,
    automatic                  boolean NOT NULL,
    drift                      text NOT NULL,
    since                      timestamptz NOT NULL,
    observed_at                timestamptz NOT NULL,
    created_at                 timestamptz NOT NULL DEFAULT now(),
    updated_at                 timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_application_environment_reconciliations_subject FOREIGN KEY (organization_id, application_environment_id) REFERENCES cd_application_environments (organization_id, id),
    CONSTRAINT cd_application_environment_reconciliations_is_unique UNIQUE (organization_id, application_environment_id),
    CONSTRAINT cd_application_environment_reconciliations_since_is_before CHECK (since <= observed_at)
);
COMMENT ON COLUMN cd_application_environment_reconciliations.revision IS 'What is in force, by the reconciler''s own word; empty when it does not say.';
COMMENT ON COLUMN cd_application_environment_reconciliations.automatic IS 'Whether the reconciler moves by itself, which nobody here has told it to (E58).';
COMMENT ON COLUMN cd_application_environment_reconciliations.drift IS 'What differs from what was deployed, in words; empty for nothing. since is how long that has been so.';

CREATE TABLE cd_environment_contacts (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_environment_contacts_organization REFERENCES cd_organizations (id),
    environment_id  bigint NOT NULL,
    reachable       boolean NOT NULL,
    reason          text NOT NULL,
    since           timestamptz NOT NULL,
    observed_at     timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_environment_contacts_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_environment_contacts_is_unique UNIQUE (organization_id, environment_id),
    CONSTRAINT cd_environment_contacts_since_is_before CHECK (since <= observed_at)
);
COMMENT ON TABLE cd_environment_contacts IS 'Whether anybody can be reached who acts in the environment, and since when.';

CREATE TRIGGER cd_application_environment_reconciliations_touch BEFORE UPDATE ON cd_application_environment_reconciliations FOR EACH ROW EXECUTE FUNCTION cd_touch();
CREATE TRIGGER cd_environment_contacts_touch BEFORE UPDATE ON cd_environment_contacts FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_environment_contacts;
DROP TABLE cd_application_environment_reconciliations;
ALTER TABLE cd_application_environments DROP CONSTRAINT cd_application_environments_shard;
ALTER TABLE cd_service_environment_healths DROP CONSTRAINT cd_service_environment_healths_since_is_before;
ALTER TABLE cd_service_environment_healths DROP COLUMN since;
ALTER TABLE cd_service_environment_healths DROP COLUMN reason;
