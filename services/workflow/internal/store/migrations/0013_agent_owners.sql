-- +goose Up

-- Whose agents are, as the domain service has said. Programs of an organization call its agents and no others.
CREATE TABLE agent_owner (
    id           bigint  PRIMARY KEY CHECK (id > 0),
    organization bigint  NOT NULL CHECK (organization > 0),
    -- Never taken back.
    revoked      boolean NOT NULL
);

-- +goose Down
DROP TABLE agent_owner;
