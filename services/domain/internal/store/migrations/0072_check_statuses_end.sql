-- A reporter could fill the table: a status that alternates between two phases is a new row each time. Of one key, subject and reporter the
-- last 20 are kept. What satisfied a passage is in the journal of its rollout.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_refuse_last_statuses() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (SELECT count(*) FROM (
            SELECT FROM cd_check_statuses s
            WHERE s.organization_id = OLD.organization_id AND s.version_set_id = OLD.version_set_id AND s.environment_id = OLD.environment_id
              AND s.key = OLD.key AND s.principal_type = OLD.principal_type AND s.principal_id = OLD.principal_id AND s.id > OLD.id LIMIT 20
        ) later) < 20 THEN
        RAISE EXCEPTION '% of % is refused: the last 20 statuses of a key, subject and reporter are kept', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'integrity_constraint_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
    END IF;
    RETURN OLD;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_refuse_last_statuses() IS 'A status may be deleted once its reporter has reported 20 later ones.';
DROP TRIGGER cd_check_statuses_are_append_only ON cd_check_statuses;
CREATE TRIGGER cd_check_statuses_are_append_only BEFORE UPDATE ON cd_check_statuses FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_check_statuses_end BEFORE DELETE ON cd_check_statuses FOR EACH ROW EXECUTE FUNCTION cd_refuse_last_statuses();

-- The role that the service works as deletes nothing of an organization. This runs as the owner, and stays within the organization that the
-- transaction has entered.
-- +goose StatementBegin
CREATE FUNCTION cd_forget_statuses(latest bigint) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH made AS (
        SELECT * FROM cd_check_statuses WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND id = latest
    ), old AS (
        SELECT s.organization_id, s.id FROM made m JOIN cd_check_statuses s
          ON s.organization_id = m.organization_id AND s.version_set_id = m.version_set_id AND s.environment_id = m.environment_id AND s.key = m.key
         AND s.principal_type = m.principal_type AND s.principal_id = m.principal_id
        ORDER BY s.id DESC OFFSET 20
    ), gone AS (
        DELETE FROM cd_check_statuses s USING old WHERE s.organization_id = old.organization_id AND s.id = old.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_statuses(bigint) IS 'Deletes what the reporter of a status has reported about its key and subject before the last 20.';
COMMENT ON TABLE cd_check_statuses IS 'What was reported about checks; a row is never changed. The latest for each key, subject and reporter counts; a row that repeats that is not added. A status of another version set than the one in question decides nothing. Rows end when their reporter has reported 20 later ones about the same key and subject; what satisfied a passage is in the journal of its rollout.';

-- +goose Down
COMMENT ON TABLE cd_check_statuses IS 'What was reported about checks; append-only. The latest for each key, subject and reporter counts; a row that repeats that is not added. A status of another version set than the one in question decides nothing. Rows are kept as the evidence of passages.';
DROP FUNCTION cd_forget_statuses(bigint);
DROP TRIGGER cd_check_statuses_end ON cd_check_statuses;
DROP TRIGGER cd_check_statuses_are_append_only ON cd_check_statuses;
CREATE TRIGGER cd_check_statuses_are_append_only BEFORE UPDATE OR DELETE ON cd_check_statuses FOR EACH ROW EXECUTE FUNCTION cd_refuse();
DROP FUNCTION cd_refuse_last_statuses();
