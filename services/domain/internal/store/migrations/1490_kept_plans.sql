-- What is called for each report of a check, each transition and each review keeps the plans of its statements in PL/pgSQL. A function in SQL
-- that runs with its owner's rights is planned anew for each call (D49, R3-49).

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_statuses(latest bigint) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE changed bigint;
BEGIN
    WITH made AS (
        SELECT * FROM cd_check_statuses WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND id = latest
    ), old AS (
        SELECT s.organization_id, s.id FROM made m JOIN cd_check_statuses s
          ON s.organization_id = m.organization_id AND s.version_set_id = m.version_set_id AND s.environment_id = m.environment_id AND s.key = m.key
         AND s.principal_type = m.principal_type AND s.principal_id = m.principal_id
        ORDER BY s.id DESC OFFSET 20
    )
    DELETE FROM cd_check_statuses s USING old WHERE s.organization_id = old.organization_id AND s.id = old.id;
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_settle_reviews(done bigint[]) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE changed bigint;
BEGIN
    DELETE FROM cd_passage_reviews WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND id = ANY (done);
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_stops(rollout bigint, keep text[]) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE changed bigint;
BEGIN
    DELETE FROM cd_passage_stops WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND rollout_id = rollout AND NOT (gate_id = ANY (keep));
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_review_stopped(stopping text, control bigint, at timestamptz) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE changed bigint;
BEGIN
    WITH stopped AS (
        DELETE FROM cd_passage_stops WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND kind = stopping AND control_id = control
        RETURNING organization_id, rollout_id
    )
    INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at) SELECT DISTINCT s.organization_id, s.rollout_id, at FROM stopped s
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_forge_marks(done bigint[]) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE changed bigint;
BEGIN
    DELETE FROM cd_forge_marks WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND id = ANY (done);
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_mark_forge_subject(of_organization bigint, of_application bigint, of_set bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cd_forge_marks (organization_id, application_id, version_set_id, due_at)
    SELECT of_organization, of_application, of_set, 'epoch'
    WHERE EXISTS (SELECT FROM cd_forge_mirrors m WHERE m.organization_id = of_organization AND m.application_id = of_application AND m.enabled)
       OR EXISTS (SELECT FROM cd_forge_hooks h WHERE h.organization_id = of_organization AND h.removed_at IS NULL);
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_statuses(latest bigint)
 RETURNS bigint
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path FROM CURRENT
AS $function$
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
$function$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_settle_reviews(done bigint[])
 RETURNS bigint
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path FROM CURRENT
AS $function$
    WITH gone AS (DELETE FROM cd_passage_reviews WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND id = ANY(done) RETURNING 1) SELECT count(*) FROM gone
$function$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_stops(rollout bigint, keep text[])
 RETURNS bigint
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path FROM CURRENT
AS $function$
    WITH gone AS (DELETE FROM cd_passage_stops WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND rollout_id = rollout AND NOT (gate_id = ANY(keep)) RETURNING 1) SELECT count(*) FROM gone
$function$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_review_stopped(stopping text, control bigint, at timestamp with time zone)
 RETURNS bigint
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path FROM CURRENT
AS $function$
    WITH stopped AS (
        DELETE FROM cd_passage_stops WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND kind = stopping AND control_id = control RETURNING organization_id, rollout_id
    ), due AS (
        INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at) SELECT DISTINCT organization_id, rollout_id, at FROM stopped
        ON CONFLICT DO NOTHING RETURNING 1
    )
    SELECT count(*) FROM due
$function$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_forge_marks(done bigint[])
 RETURNS bigint
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path FROM CURRENT
AS $function$
    WITH gone AS (DELETE FROM cd_forge_marks WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND id = ANY(done) RETURNING 1) SELECT count(*) FROM gone
$function$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_mark_forge_subject(of_organization bigint, of_application bigint, of_set bigint)
 RETURNS void
 LANGUAGE sql
AS $function$
    INSERT INTO cd_forge_marks (organization_id, application_id, version_set_id, due_at)
    SELECT of_organization, of_application, of_set, 'epoch'
    WHERE EXISTS (SELECT FROM cd_forge_mirrors m WHERE m.organization_id = of_organization AND m.application_id = of_application AND m.enabled)
       OR EXISTS (SELECT FROM cd_forge_hooks h WHERE h.organization_id = of_organization AND h.removed_at IS NULL)
$function$;
-- +goose StatementEnd
