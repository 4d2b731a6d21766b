-- Applications are renamed, and are still found by the names that they had (D57).

-- +goose Up
CREATE TABLE cd_application_aliases (
    organization_id bigint NOT NULL CONSTRAINT cd_application_aliases_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    name            text NOT NULL,
    ended_at        timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_application_aliases_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_application_aliases_name_is_given CHECK (name <> '')
);
CREATE UNIQUE INDEX cd_application_aliases_name_is_unique ON cd_application_aliases (organization_id, name) WHERE ended_at IS NULL;
CREATE INDEX cd_application_aliases_of_application ON cd_application_aliases (organization_id, application_id);
COMMENT ON TABLE cd_application_aliases IS 'Names that applications had, by which they are still found. None that has not ended is the name of an application.';
COMMENT ON COLUMN cd_application_aliases.ended_at IS 'Since when an application has the name; null while it finds the one that had it.';
CREATE TRIGGER cd_application_aliases_touch BEFORE UPDATE ON cd_application_aliases FOR EACH ROW EXECUTE FUNCTION cd_touch();

DROP TRIGGER cd_applications_name_is_immutable ON cd_applications;
-- +goose StatementBegin
CREATE FUNCTION cd_keep_former_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE cd_application_aliases SET ended_at = now() WHERE organization_id = NEW.organization_id AND name = NEW.name AND ended_at IS NULL;
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO cd_application_aliases (organization_id, application_id, name) VALUES (OLD.organization_id, OLD.id, OLD.name);
        INSERT INTO cd_application_name_ends (organization_id, application_id, name_end)
        SELECT NEW.organization_id, NEW.id, substr(lower(NEW.name), n) FROM generate_series(1, length(NEW.name)) n
        ON CONFLICT ON CONSTRAINT cd_application_name_ends_are_unique DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_keep_former_name IS 'Whatever is given a name ends the alias of that name, and what it was called before becomes one.';
CREATE TRIGGER cd_applications_keep_former_name AFTER INSERT ON cd_applications FOR EACH ROW EXECUTE FUNCTION cd_keep_former_name();
CREATE TRIGGER cd_applications_keep_changed_name AFTER UPDATE OF name ON cd_applications
    FOR EACH ROW WHEN (OLD.name <> NEW.name) EXECUTE FUNCTION cd_keep_former_name();

-- +goose Down
DROP TRIGGER cd_applications_keep_changed_name ON cd_applications;
DROP TRIGGER cd_applications_keep_former_name ON cd_applications;
DROP FUNCTION cd_keep_former_name;
CREATE TRIGGER cd_applications_name_is_immutable BEFORE UPDATE ON cd_applications FOR EACH ROW EXECUTE FUNCTION cd_refuse_changed_pins('name');
DROP TABLE cd_application_aliases;
