-- Freezes, vetoes and pins change only while no passage is being decided (D49).

-- +goose Up
-- Use cases take the lock first (query LockControls). The tables take it as well, so that replicas of a release of before, which do not,
-- change nothing between what a passage has read and its grant.
-- +goose StatementBegin
CREATE FUNCTION cd_lock_controls() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(concat_ws('/', 'lockstep/controls', current_schema(), NEW.organization_id), 0));
    RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_lock_controls IS 'Who decides about passages holds the same lock, shared, until their transaction ends.';
CREATE TRIGGER cd_freezes_lock_controls BEFORE INSERT OR UPDATE ON cd_freezes FOR EACH ROW EXECUTE FUNCTION cd_lock_controls();
CREATE TRIGGER cd_vetoes_lock_controls BEFORE INSERT OR UPDATE ON cd_vetoes FOR EACH ROW EXECUTE FUNCTION cd_lock_controls();
CREATE TRIGGER cd_environment_pins_lock_controls BEFORE INSERT OR UPDATE ON cd_environment_pins FOR EACH ROW EXECUTE FUNCTION cd_lock_controls();

-- +goose Down
DROP TRIGGER cd_environment_pins_lock_controls ON cd_environment_pins;
DROP TRIGGER cd_vetoes_lock_controls ON cd_vetoes;
DROP TRIGGER cd_freezes_lock_controls ON cd_freezes;
DROP FUNCTION cd_lock_controls();
