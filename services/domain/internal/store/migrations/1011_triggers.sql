-- What begins rollouts by itself.

-- +goose Up
CREATE TABLE cd_triggers (
    organization_id bigint NOT NULL CONSTRAINT cd_triggers_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    name            text NOT NULL,
    kind            text NOT NULL,
    config          jsonb NOT NULL,
    enabled         boolean NOT NULL,
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    changed_at      timestamptz NOT NULL,
    removed_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_triggers_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_triggers_config_is_an_object CHECK (jsonb_typeof(config) = 'object'),
    CONSTRAINT cd_triggers_config_is_bounded CHECK (length((config)::text) <= 16384),
    CONSTRAINT cd_triggers_kind_is_known CHECK (kind IN ('version', 'git', 'manual', 'drift', 'chain', 'schedule', 'event')),
    CONSTRAINT cd_triggers_name_is_plain CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT cd_triggers_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system'))
);
COMMENT ON TABLE cd_triggers IS 'What begins rollouts of an application. Rows are kept: signals and queued rollouts refer to them; removed_at ends one.';
COMMENT ON COLUMN cd_triggers.changed_at IS 'When it was saved last, by the principal.';
COMMENT ON COLUMN cd_triggers.config IS 'As its kind has it; checked when it is saved.';
CREATE UNIQUE INDEX cd_triggers_name_is_unique ON cd_triggers (organization_id, application_id, name) WHERE removed_at IS NULL;
CREATE INDEX cd_triggers_of_kind ON cd_triggers (organization_id, kind, application_id) WHERE removed_at IS NULL AND enabled;
CREATE UNIQUE INDEX cd_triggers_one_is_manual ON cd_triggers (organization_id, application_id) WHERE removed_at IS NULL AND kind = 'manual';
CREATE TRIGGER cd_triggers_touch BEFORE UPDATE ON cd_triggers FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_triggers;
