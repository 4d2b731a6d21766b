-- What the passage of a wave opens is kept by agent, so that a call reads what is about its own cluster, however many the fleet has.

-- +goose Up
CREATE TABLE passage_target (
    organization bigint NOT NULL CHECK (organization > 0),
    workflow     text NOT NULL,
    environment  bigint NOT NULL CHECK (environment > 0),
    agent        bigint NOT NULL CHECK (agent > 0),
    places       jsonb NOT NULL CHECK (jsonb_typeof(places) = 'array'),
    PRIMARY KEY (organization, workflow, environment, agent)
);
COMMENT ON TABLE passage_target IS 'What the run of a rollout may change in the targets of the waves that were let begin. Deleted with the end of the rollout.';

-- +goose Down
DROP TABLE passage_target;
