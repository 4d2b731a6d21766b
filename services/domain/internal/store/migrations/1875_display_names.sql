-- Environments and services are shown by another name, and are found by it. What they were made with stays what everything goes by (D57).

-- +goose Up
ALTER TABLE cd_environments ADD COLUMN display_name text
    CONSTRAINT cd_environments_display_name_is_another CHECK (display_name <> '' AND display_name <> name);
ALTER TABLE cd_services ADD COLUMN display_name text
    CONSTRAINT cd_services_display_name_is_another CHECK (display_name <> '' AND display_name <> name);
COMMENT ON COLUMN cd_environments.display_name IS 'What people are shown, and may write, in place of the name; null for the name itself.';
COMMENT ON COLUMN cd_services.display_name IS 'What people are shown, and may write, in place of the name; null for the name itself.';
CREATE UNIQUE INDEX cd_environments_display_name_is_unique ON cd_environments (organization_id, lower(display_name)) WHERE display_name IS NOT NULL;
CREATE UNIQUE INDEX cd_services_display_name_is_unique ON cd_services (organization_id, application_id, lower(display_name)) WHERE display_name IS NOT NULL;
CREATE TRIGGER cd_environments_name_is_immutable BEFORE UPDATE OF name ON cd_environments FOR EACH ROW EXECUTE FUNCTION cd_refuse_changed_pins('name');
CREATE TRIGGER cd_services_name_is_immutable BEFORE UPDATE OF name ON cd_services FOR EACH ROW EXECUTE FUNCTION cd_refuse_changed_pins('name');

-- The tables keep names and display names apart, so that replicas of a release of before, which know no display names, take none either.
-- +goose StatementBegin
CREATE FUNCTION cd_keep_environment_names_apart() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(concat_ws('/', 'lockstep/environment names', current_schema(), NEW.organization_id), 0));
    IF EXISTS (SELECT FROM cd_environments WHERE organization_id = NEW.organization_id AND lower(name) = lower(NEW.display_name) AND id <> NEW.id)
        OR EXISTS (SELECT FROM cd_environments WHERE organization_id = NEW.organization_id AND lower(display_name) = lower(NEW.name) AND id <> NEW.id) THEN
        RAISE EXCEPTION 'a name of an environment is that of another one'
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'cd_environments_names_are_apart', TABLE = 'cd_environments';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_keep_environment_names_apart IS 'No environment is shown by the name of another one, in whatever case. The lock has those who take a name wait for each other.';
CREATE TRIGGER cd_environments_names_are_apart BEFORE INSERT OR UPDATE OF display_name ON cd_environments
    FOR EACH ROW EXECUTE FUNCTION cd_keep_environment_names_apart();

-- +goose StatementBegin
CREATE FUNCTION cd_keep_service_names_apart() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(concat_ws('/', 'lockstep/service names', current_schema(), NEW.organization_id, NEW.application_id), 0));
    IF EXISTS (SELECT FROM cd_services WHERE organization_id = NEW.organization_id AND application_id = NEW.application_id AND lower(name) = lower(NEW.display_name) AND id <> NEW.id)
        OR EXISTS (SELECT FROM cd_services WHERE organization_id = NEW.organization_id AND application_id = NEW.application_id AND lower(display_name) = lower(NEW.name) AND id <> NEW.id) THEN
        RAISE EXCEPTION 'a name of a service is that of another one'
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'cd_services_names_are_apart', TABLE = 'cd_services';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_keep_service_names_apart IS 'No service is shown by the name of another one of its application.';
CREATE TRIGGER cd_services_names_are_apart BEFORE INSERT OR UPDATE OF display_name ON cd_services
    FOR EACH ROW EXECUTE FUNCTION cd_keep_service_names_apart();

-- +goose Down
DROP TRIGGER cd_services_names_are_apart ON cd_services;
DROP TRIGGER cd_environments_names_are_apart ON cd_environments;
DROP FUNCTION cd_keep_service_names_apart;
DROP FUNCTION cd_keep_environment_names_apart;
DROP TRIGGER cd_services_name_is_immutable ON cd_services;
DROP TRIGGER cd_environments_name_is_immutable ON cd_environments;
ALTER TABLE cd_services DROP COLUMN display_name;
ALTER TABLE cd_environments DROP COLUMN display_name;
