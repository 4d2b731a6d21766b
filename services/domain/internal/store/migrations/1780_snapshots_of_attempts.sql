-- Every attempt of a deployment is kept (D53). cd_deployment_snapshots has what is deployed.

-- +goose Up
ALTER TABLE cd_deployment_snapshots ADD COLUMN reported_at timestamptz;
COMMENT ON TABLE cd_deployment_snapshots IS 'What exactly was deployed, by the latest attempt of each deployment before its end. Never a secret.';
COMMENT ON COLUMN cd_deployment_snapshots.reported_at IS 'When the program reported it, to show: reports are in the order of their arrival. Null if a replica of an earlier release has stored it.';

CREATE TABLE cd_deployment_attempts (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_deployment_attempts_organization REFERENCES cd_organizations (id),
    deployment_id   bigint NOT NULL,
    commit_sha      text NOT NULL,
    manifest_digest text NOT NULL,
    reported_at     timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_deployment_attempts_deployment FOREIGN KEY (organization_id, deployment_id) REFERENCES cd_deployments (organization_id, id)
);
COMMENT ON TABLE cd_deployment_attempts IS 'What attempts of deployments have committed that another one has replaced, or that was reported after the end; kept as long as the snapshots.';
COMMENT ON COLUMN cd_deployment_attempts.reported_at IS 'When the program reported it, or where that is not known, when it was stored.';
CREATE INDEX cd_deployment_attempts_by_deployment ON cd_deployment_attempts (organization_id, deployment_id, id);
CREATE INDEX cd_deployment_attempts_by_commit ON cd_deployment_attempts (organization_id, commit_sha);
CREATE TRIGGER cd_deployment_attempts_are_append_only BEFORE UPDATE OR DELETE ON cd_deployment_attempts FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_deployment_attempts_are_kept BEFORE TRUNCATE ON cd_deployment_attempts EXECUTE FUNCTION cd_refuse();

-- +goose StatementBegin
CREATE FUNCTION cd_replace_snapshot(deployment bigint, sha text, digest text, given_parameters jsonb, given_changes jsonb, at timestamptz)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    tenant CONSTANT bigint := current_setting('lockstep.organization')::bigint;
BEGIN
    INSERT INTO cd_deployment_attempts (organization_id, deployment_id, commit_sha, manifest_digest, reported_at)
    SELECT s.organization_id, s.deployment_id, s.commit_sha, s.manifest_digest, COALESCE(s.reported_at, s.created_at)
    FROM cd_deployment_snapshots s WHERE s.organization_id = tenant AND s.deployment_id = deployment AND NOT EXISTS (
        SELECT FROM cd_deployment_attempts a
        WHERE a.organization_id = tenant AND a.deployment_id = deployment AND a.commit_sha = s.commit_sha AND a.manifest_digest = s.manifest_digest);
    DELETE FROM cd_deployment_snapshots s WHERE s.organization_id = tenant AND s.deployment_id = deployment;
    INSERT INTO cd_deployment_snapshots (organization_id, deployment_id, commit_sha, manifest_digest, parameters, changes, reported_at)
    VALUES (tenant, deployment, sha, digest, given_parameters, given_changes, at);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_replace_snapshot IS 'Puts the snapshot of an attempt in the place of that of the one before, which is kept.';

-- +goose StatementBegin
CREATE FUNCTION cd_refuse_loss_of_snapshot() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM cd_deployment_attempts a
        WHERE a.organization_id = OLD.organization_id AND a.deployment_id = OLD.deployment_id
          AND a.commit_sha = OLD.commit_sha AND a.manifest_digest = OLD.manifest_digest)
    THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% of % is refused: it is not kept as an attempt', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_refuse_loss_of_snapshot IS 'Guards snapshots: one goes only once it is kept as an attempt.';
DROP TRIGGER cd_deployment_snapshots_are_immutable ON cd_deployment_snapshots;
CREATE TRIGGER cd_deployment_snapshots_are_immutable BEFORE UPDATE ON cd_deployment_snapshots FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_deployment_snapshots_go_as_attempts BEFORE DELETE ON cd_deployment_snapshots FOR EACH ROW EXECUTE FUNCTION cd_refuse_loss_of_snapshot();

-- +goose Down
DROP TRIGGER cd_deployment_snapshots_go_as_attempts ON cd_deployment_snapshots;
DROP TRIGGER cd_deployment_snapshots_are_immutable ON cd_deployment_snapshots;
CREATE TRIGGER cd_deployment_snapshots_are_immutable BEFORE DELETE OR UPDATE ON cd_deployment_snapshots FOR EACH ROW EXECUTE FUNCTION cd_refuse();
DROP FUNCTION cd_refuse_loss_of_snapshot;
DROP FUNCTION cd_replace_snapshot;
DROP TABLE cd_deployment_attempts;
ALTER TABLE cd_deployment_snapshots DROP COLUMN reported_at;
COMMENT ON TABLE cd_deployment_snapshots IS 'What exactly was deployed. Never a secret.';
