-- What differs from what was deployed is a list of objects, by which decisions are made; and looking for drift may have failed (R4-10, R4-11).

-- +goose Up
ALTER TABLE cd_application_environment_reconciliations ADD COLUMN objects jsonb NOT NULL DEFAULT '[]';
ALTER TABLE cd_application_environment_reconciliations ADD CONSTRAINT cd_application_environment_reconciliations_objects_are_listed
    CHECK (jsonb_typeof(objects) = 'array');
COMMENT ON COLUMN cd_application_environment_reconciliations.objects IS 'What differs, object by object; the column drift is the same in words, for people.';

-- +goose StatementBegin
CREATE FUNCTION cd_drift_in_words(drift text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN drift = '' THEN '[]'::jsonb ELSE jsonb_build_array(
        jsonb_build_object('kind', '', 'name', '', 'how', 'different', 'differs', jsonb_build_array(drift))
        || CASE WHEN strpos(drift, '(others manage ') > 0
            THEN jsonb_build_object('held', jsonb_build_array(jsonb_build_object('path', substring(drift FROM '\(others manage ([^,)]*)'))))
            ELSE '{}'::jsonb END) END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_drift_in_words IS 'A list of what was only said in words, by a release of before.';

-- +goose StatementBegin
CREATE FUNCTION cd_list_drift() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.objects = '[]' THEN
            NEW.objects := cd_drift_in_words(NEW.drift);
        END IF;
    ELSIF NEW.drift <> OLD.drift AND NEW.objects = OLD.objects THEN
        NEW.objects := cd_drift_in_words(NEW.drift);
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_list_drift IS 'Replicas of before store no list: the words change without it.';
CREATE TRIGGER cd_application_environment_reconciliations_list_drift BEFORE INSERT OR UPDATE OF drift, objects
    ON cd_application_environment_reconciliations FOR EACH ROW EXECUTE FUNCTION cd_list_drift();

ALTER TABLE cd_drift_looks ADD COLUMN failed_at timestamptz, ADD COLUMN failure text NOT NULL DEFAULT '';
ALTER TABLE cd_drift_looks ADD CONSTRAINT cd_drift_looks_failed_when CHECK (failed_at IS NOT NULL OR failure = '');
COMMENT ON COLUMN cd_drift_looks.failed_at IS 'When nothing could be found out, because of failure; NULL if that has not been so since the last answer.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_drift_previews(before timestamptz, at_most integer) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT organization_id, id FROM cd_rollout_previews
        WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND drift_of IS NOT NULL AND created_at < before
        ORDER BY created_at, id LIMIT at_most FOR UPDATE SKIP LOCKED
    ), gone AS (DELETE FROM cd_rollout_previews p USING old WHERE p.organization_id = old.organization_id AND p.id = old.id RETURNING p.id)
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd

-- What is stored, of all organizations.
ALTER TABLE cd_application_environment_reconciliations NO FORCE ROW LEVEL SECURITY;
UPDATE cd_application_environment_reconciliations SET objects = cd_drift_in_words(drift) WHERE drift <> '';
ALTER TABLE cd_application_environment_reconciliations FORCE ROW LEVEL SECURITY;

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_drift_previews(before timestamptz, at_most integer) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT organization_id, id FROM cd_rollout_previews
        WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND drift_of IS NOT NULL AND created_at < before
        ORDER BY created_at LIMIT at_most
    ), gone AS (DELETE FROM cd_rollout_previews p USING old WHERE p.organization_id = old.organization_id AND p.id = old.id RETURNING p.id)
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
ALTER TABLE cd_drift_looks DROP CONSTRAINT cd_drift_looks_failed_when, DROP COLUMN failure, DROP COLUMN failed_at;
DROP TRIGGER cd_application_environment_reconciliations_list_drift ON cd_application_environment_reconciliations;
DROP FUNCTION cd_list_drift();
DROP FUNCTION cd_drift_in_words(text);
ALTER TABLE cd_application_environment_reconciliations DROP CONSTRAINT cd_application_environment_reconciliations_objects_are_listed, DROP COLUMN objects;
