-- Labels, owners and links of applications, services and environments (D57).

-- +goose Up
CREATE TABLE cd_details (
    organization_id bigint NOT NULL CONSTRAINT cd_details_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint,
    environment_id  bigint,
    service_id      bigint,
    labels          jsonb NOT NULL DEFAULT '{}',
    owner           text NOT NULL DEFAULT '',
    links           jsonb NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_details_are_unique UNIQUE NULLS NOT DISTINCT (organization_id, application_id, environment_id, service_id),
    CONSTRAINT cd_details_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_details_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_details_service FOREIGN KEY (organization_id, service_id) REFERENCES cd_services (organization_id, id),
    CONSTRAINT cd_details_are_of_one_thing CHECK (num_nonnulls(application_id, environment_id, service_id) = 1),
    CONSTRAINT cd_details_labels_are_bounded CHECK (jsonb_typeof(labels) = 'object' AND octet_length(labels::text) <= 16000),
    CONSTRAINT cd_details_owner_is_bounded CHECK (octet_length(owner) <= 200),
    CONSTRAINT cd_details_links_are_bounded CHECK (jsonb_typeof(links) = 'object' AND octet_length(links::text) <= 64000)
);
CREATE INDEX cd_details_of_environment ON cd_details (organization_id, environment_id) WHERE environment_id IS NOT NULL;
CREATE INDEX cd_details_of_service ON cd_details (organization_id, service_id) WHERE service_id IS NOT NULL;
COMMENT ON TABLE cd_details IS 'What people keep about an application, an environment or a service beside its description; no row for nothing. Rows are kept with what they are of, and change with it.';
COMMENT ON COLUMN cd_details.labels IS 'Names and values that chains, policies and notifications select by.';
COMMENT ON COLUMN cd_details.owner IS 'Who answers for it, for people to read; it gives no permission.';
COMMENT ON COLUMN cd_details.links IS 'Addresses by title.';
CREATE TRIGGER cd_details_touch BEFORE UPDATE ON cd_details FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_details;
