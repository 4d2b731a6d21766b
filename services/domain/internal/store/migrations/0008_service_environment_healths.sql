-- The latest health seen of each service in each environment: a cache, last write wins, not history (R17).

-- +goose Up
CREATE TABLE cd_service_environment_healths (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_service_environment_healths_organization REFERENCES cd_organizations (id),
    service_id      bigint NOT NULL,
    environment_id  bigint NOT NULL,
    health          smallint NOT NULL CONSTRAINT cd_service_environment_healths_health_is_known CHECK (health BETWEEN 0 AND 3),
    observed_at     timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_service_environment_healths_service FOREIGN KEY (organization_id, service_id) REFERENCES cd_services (organization_id, id),
    CONSTRAINT cd_service_environment_healths_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_service_environment_healths_is_unique UNIQUE (organization_id, service_id, environment_id)
);
COMMENT ON COLUMN cd_service_environment_healths.health IS '0 unknown 1 healthy 2 progressing 3 degraded';
CREATE TRIGGER cd_service_environment_healths_touch BEFORE UPDATE ON cd_service_environment_healths FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_service_environment_healths;
