-- An environment may have checks of its own, beside those of the pipelines that go to it (D48).

-- +goose Up
CREATE TABLE cd_environment_checks (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_environment_checks_organization REFERENCES cd_organizations (id),
    environment_id  bigint NOT NULL,
    checks          jsonb NOT NULL CONSTRAINT cd_environment_checks_is_an_object CHECK (jsonb_typeof(checks) = 'object'),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, environment_id),
    CONSTRAINT cd_environment_checks_is_bounded CHECK (length(checks::text) <= 131072),
    CONSTRAINT cd_environment_checks_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id)
);
COMMENT ON TABLE cd_environment_checks IS 'What an environment requires by itself: active and proposed, as in a pipeline; an empty object for nothing. A rollout pins what there is when it is created. Rows end with the environment.';
CREATE TRIGGER cd_environment_checks_touch BEFORE UPDATE ON cd_environment_checks FOR EACH ROW EXECUTE FUNCTION cd_touch();

ALTER TABLE cd_rollout_checks
    ADD COLUMN own boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT cd_rollout_checks_pkey,
    ADD PRIMARY KEY (organization_id, rollout_id, environment_id, target, key, own);
COMMENT ON COLUMN cd_rollout_checks.own IS 'Whether the environment requires it; otherwise the pipeline does.';

-- +goose Down
ALTER TABLE cd_rollout_checks DISABLE TRIGGER cd_rollout_checks_are_immutable;
DELETE FROM cd_rollout_checks WHERE own;
ALTER TABLE cd_rollout_checks ENABLE TRIGGER cd_rollout_checks_are_immutable;
ALTER TABLE cd_rollout_checks DROP CONSTRAINT cd_rollout_checks_pkey, DROP COLUMN own, ADD PRIMARY KEY (organization_id, rollout_id, environment_id, target, key);
DROP TABLE cd_environment_checks;
