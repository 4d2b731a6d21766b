-- Who has archived and restored applications and environments, and when: the tables themselves only say how it is now (R39, R51).

-- +goose Up
CREATE TABLE cd_archivings (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_archivings_organization REFERENCES cd_organizations (id),
    application_id  bigint,
    environment_id  bigint,
    archived        boolean NOT NULL,
    principal_type  text NOT NULL CONSTRAINT cd_archivings_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    reason          text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_archivings_are_of_one_thing CHECK (num_nonnulls(application_id, environment_id) = 1),
    CONSTRAINT cd_archivings_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_archivings_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id)
);
COMMENT ON TABLE cd_archivings IS 'Who has archived and restored what, and when; append-only (R39).';
COMMENT ON COLUMN cd_archivings.archived IS 'Whether it was archived then; otherwise it was restored.';
CREATE INDEX cd_archivings_of_application ON cd_archivings (organization_id, application_id, id DESC) WHERE application_id IS NOT NULL;
CREATE INDEX cd_archivings_of_environment ON cd_archivings (organization_id, environment_id, id DESC) WHERE environment_id IS NOT NULL;
CREATE TRIGGER cd_archivings_are_append_only BEFORE UPDATE OR DELETE ON cd_archivings FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_archivings_are_kept BEFORE TRUNCATE ON cd_archivings EXECUTE FUNCTION cd_refuse();

-- +goose Down
DROP TABLE cd_archivings;
