-- The worst health in a cell is that of the latest words about all services there, also where two come at once: whoever is
-- second waits for the cell, and looks after that, in a statement of its own, which sees what the first has said. A word that
-- says what was known touches no cell.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_keep_worst_health() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    cell cd_cells;
BEGIN
    SELECT c.* INTO cell
    FROM cd_services s
    JOIN cd_cells c ON c.organization_id = s.organization_id AND c.application_id = s.application_id AND c.environment_id = NEW.environment_id
    WHERE s.organization_id = NEW.organization_id AND s.id = NEW.service_id
    FOR NO KEY UPDATE OF c;
    IF FOUND THEN
        UPDATE cd_cells c SET worst = w.worst
        FROM (SELECT cd_worst_health(cell.organization_id, cell.application_id, cell.environment_id) AS worst) w
        WHERE c.id = cell.id AND c.worst <> w.worst;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
DROP TRIGGER cd_service_environment_healths_keep_worst ON cd_service_environment_healths;
CREATE TRIGGER cd_service_environment_healths_begin_worst AFTER INSERT ON cd_service_environment_healths
    FOR EACH ROW EXECUTE FUNCTION cd_keep_worst_health();
CREATE TRIGGER cd_service_environment_healths_keep_worst AFTER UPDATE OF health ON cd_service_environment_healths
    FOR EACH ROW WHEN (OLD.health <> NEW.health) EXECUTE FUNCTION cd_keep_worst_health();

-- +goose Down
DROP TRIGGER cd_service_environment_healths_begin_worst ON cd_service_environment_healths;
DROP TRIGGER cd_service_environment_healths_keep_worst ON cd_service_environment_healths;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_keep_worst_health() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE cd_cells c SET worst = w.worst
    FROM cd_services s, LATERAL (SELECT cd_worst_health(s.organization_id, s.application_id, NEW.environment_id) AS worst) w
    WHERE s.organization_id = NEW.organization_id AND s.id = NEW.service_id
      AND c.organization_id = s.organization_id AND c.application_id = s.application_id AND c.environment_id = NEW.environment_id
      AND c.worst <> w.worst;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER cd_service_environment_healths_keep_worst AFTER INSERT OR UPDATE OF health ON cd_service_environment_healths
    FOR EACH ROW EXECUTE FUNCTION cd_keep_worst_health();
