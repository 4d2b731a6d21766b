-- Deployments at forges (D64): which applications have theirs published. Each is a row beside the statuses of commits, sent in the same way and
-- within the same budgets.

-- +goose Up
ALTER TABLE cd_forge_mirrors ADD COLUMN deployments boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cd_forge_mirrors.deployments IS 'Whether deployments are published, too.';

ALTER TABLE cd_forge_statuses
    ADD COLUMN kind text NOT NULL DEFAULT 'status' CONSTRAINT cd_forge_statuses_kind_is_known CHECK (kind IN ('status', 'deployment')),
    ADD COLUMN stage text NOT NULL DEFAULT '' CONSTRAINT cd_forge_statuses_stage_is_known
        CHECK (stage IN ('', 'queued', 'in_progress', 'success', 'failure', 'inactive')),
    ADD COLUMN rollout_id bigint NOT NULL DEFAULT 0,
    ADD COLUMN forge_number bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT cd_forge_statuses_deployment_has_a_stage CHECK (CASE kind WHEN 'status' THEN stage = '' WHEN 'deployment' THEN stage <> '' AND rollout_id > 0 ELSE true END),
    -- A replica of an earlier release does not know deployments, and would send one as a status: it is left to the others.
    ADD CONSTRAINT cd_forge_statuses_inputs_are_of_the_kind CHECK (state <> 'sending' OR kind = 'status' OR inputs ? 'deployment');
COMMENT ON COLUMN cd_forge_statuses.kind IS 'What the forge is given: a status of the commit, or a deployment of it.';
COMMENT ON COLUMN cd_forge_statuses.stage IS 'How far a deployment has come; empty for a status.';
COMMENT ON COLUMN cd_forge_statuses.rollout_id IS 'The rollout of a deployment; 0 for a status.';
COMMENT ON COLUMN cd_forge_statuses.forge_number IS 'What the forge calls a deployment; 0 if that is not known.';
COMMENT ON TABLE cd_forge_statuses IS 'Statuses and deployments of commits at forges, one of each name: a copy, which no decision depends on. Rows end 30 days after their last change, those of deployments not before they have ended at the forge.';
CREATE INDEX cd_forge_statuses_open_deployments ON cd_forge_statuses (organization_id, application_id, version_set_id, rollout_id)
    WHERE kind = 'deployment' AND stage IN ('queued', 'in_progress', 'success');

CREATE INDEX cd_forge_statuses_numbers ON cd_forge_statuses (repository, forge_number) WHERE forge_number > 0;

-- +goose StatementBegin
CREATE FUNCTION cd_forge_numbers(organization bigint, status bigint, place text, title text) RETURNS TABLE(number bigint)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(concat_ws('/', 'lockstep/forge number', current_schema(), place), 0));
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT s.forge_number FROM cd_forge_statuses s WHERE s.repository = place AND s.forge_number > 0
        AND split_part(s.name, '#', 1) = title AND (s.organization_id, s.id) IS DISTINCT FROM (organization, status)
        ORDER BY s.forge_number DESC LIMIT 200;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forge_numbers(bigint, bigint, text, text) IS 'What a forge calls the latest other deployments of an environment, of all organizations: several may publish to one repository. One transaction at a time for each repository.';

DROP INDEX cd_forge_statuses_settled;
CREATE INDEX cd_forge_statuses_settled ON cd_forge_statuses (organization_id, updated_at)
    WHERE state IN ('sent', 'failed') AND (state = 'failed' OR stage IN ('', 'failure', 'inactive'));

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_forge_statuses(before timestamptz, most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH own AS (
        SELECT NULLIF(current_setting('lockstep.organization', true), '')::bigint AS id
    ), settled AS (
        SELECT s.organization_id, s.id FROM cd_forge_statuses s JOIN own ON own.id = s.organization_id
        WHERE s.state IN ('sent', 'failed') AND (s.state = 'failed' OR s.stage IN ('', 'failure', 'inactive')) AND s.updated_at < before
        ORDER BY s.updated_at LIMIT most
    ), gone AS (
        DELETE FROM cd_forge_statuses s USING settled WHERE s.organization_id = settled.organization_id AND s.id = settled.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION cd_mark_forge_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM cd_mark_forge_subject(NEW.organization_id, NEW.application_id, NEW.version_set_id);
    RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_mark_forge_end() IS 'A rollout may end without a change of the state of an environment that it was in.';
CREATE TRIGGER cd_rollouts_mark_forge AFTER UPDATE OF state ON cd_rollouts FOR EACH ROW
    WHEN (NEW.state IS DISTINCT FROM OLD.state AND NEW.state IN ('completed', 'failed', 'cancelled')) EXECUTE FUNCTION cd_mark_forge_end();

-- +goose Down
DROP TRIGGER cd_rollouts_mark_forge ON cd_rollouts;
DROP FUNCTION cd_forge_numbers(bigint, bigint, text, text);
DROP FUNCTION cd_mark_forge_end();
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_forge_statuses(before timestamptz, most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH own AS (
        SELECT NULLIF(current_setting('lockstep.organization', true), '')::bigint AS id
    ), settled AS (
        SELECT s.organization_id, s.id FROM cd_forge_statuses s JOIN own ON own.id = s.organization_id
        WHERE s.state IN ('sent', 'failed') AND s.updated_at < before ORDER BY s.updated_at LIMIT most
    ), gone AS (
        DELETE FROM cd_forge_statuses s USING settled WHERE s.organization_id = settled.organization_id AND s.id = settled.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
DROP INDEX cd_forge_statuses_settled;
ALTER TABLE cd_forge_statuses NO FORCE ROW LEVEL SECURITY;
DELETE FROM cd_forge_statuses WHERE kind = 'deployment';
ALTER TABLE cd_forge_statuses FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_forge_statuses DROP COLUMN kind, DROP COLUMN stage, DROP COLUMN rollout_id, DROP COLUMN forge_number;
CREATE INDEX cd_forge_statuses_settled ON cd_forge_statuses (organization_id, updated_at) WHERE state IN ('sent', 'failed');
COMMENT ON TABLE cd_forge_statuses IS 'Statuses of commits at forges, one of each name: a copy of what checks have come to, which no decision depends on. Rows end 30 days after their last change.';
ALTER TABLE cd_forge_mirrors DROP COLUMN deployments;
