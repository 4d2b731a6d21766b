-- What a rollout may change in each of its environments, pinned with it, and which environments accept changes that belong to no rollout (D46).

-- +goose Up
CREATE TABLE cd_rollout_places (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_places_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    environment_id  bigint NOT NULL,
    places          jsonb NOT NULL CONSTRAINT cd_rollout_places_are_a_list CHECK (jsonb_typeof(places) = 'array'),
    weights         integer[] NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_rollout_places_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_places_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_rollout_places_one_per_environment UNIQUE (organization_id, rollout_id, environment_id)
);
COMMENT ON TABLE cd_rollout_places IS 'What the passage of an environment opens for a rollout; no row for rollouts of earlier releases.';
COMMENT ON COLUMN cd_rollout_places.places IS 'Parts of clusters and repositories, as in the event com.gitlab.cd.rollout.passage_granted.';
COMMENT ON COLUMN cd_rollout_places.weights IS 'The weights at which the rollout stops there, in percent: each needs a passage of its own.';
CREATE TRIGGER cd_rollout_places_are_immutable BEFORE UPDATE OR DELETE ON cd_rollout_places FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_places_are_kept BEFORE TRUNCATE ON cd_rollout_places EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_environment_protections (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_environment_protections_organization REFERENCES cd_organizations (id),
    environment_id  bigint NOT NULL,
    direct_changes  boolean NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_environment_protections_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_environment_protections_one_per_environment UNIQUE (organization_id, environment_id)
);
COMMENT ON TABLE cd_environment_protections IS 'No row: the environment is protected by its tier, or by its approval. cd_changes has who decided otherwise.';
COMMENT ON COLUMN cd_environment_protections.direct_changes IS 'Workflows that belong to no rollout may change the environment.';
CREATE TRIGGER cd_environment_protections_touch BEFORE UPDATE ON cd_environment_protections FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_environments_after(behind bigint, most integer) RETURNS TABLE (id bigint, organization_id bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT e.id, e.organization_id FROM cd_environments e WHERE e.id > behind ORDER BY e.id LIMIT most;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_environments_after(bigint, integer) IS 'There is one worker for all organizations.';

-- +goose Down
DROP FUNCTION cd_environments_after(bigint, integer);
DROP TABLE cd_environment_protections;
DROP TABLE cd_rollout_places;
