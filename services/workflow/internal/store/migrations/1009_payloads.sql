-- Large values, kept once.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION payload_let_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE payload SET loose = true
    FROM (SELECT DISTINCT gone.organization, gone.digest FROM gone ORDER BY 1, 2) AS g
    WHERE payload.organization = g.organization AND payload.digest = g.digest AND NOT payload.loose;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TABLE payload (
    organization bigint NOT NULL CHECK (organization > 0),
    -- SHA-256 of data.
    digest       bytea NOT NULL CHECK (octet_length(digest) = 32),
    -- JSON, exactly as it was stored.
    data         bytea NOT NULL,
    stored_at    timestamptz NOT NULL,
    -- Whether nothing may refer to it any more. That is found out by the process that deletes it.
    loose        boolean NOT NULL,
    PRIMARY KEY (organization, digest)
);
COMMENT ON TABLE payload IS 'A large value. Deleted some time after the last row that refers to it.';
CREATE INDEX payload_loose ON payload (organization, digest) WHERE loose;

CREATE TABLE payload_use (
    organization bigint NOT NULL CHECK (organization > 0),
    digest       bytea NOT NULL,
    holder       text NOT NULL CHECK (holder IN ('event', 'entry', 'start', 'generation')),
    -- The number of the event, or of the execution.
    owner        bigint NOT NULL,
    -- The number of the entry or generation; 0 for others.
    seq          bigint NOT NULL DEFAULT 0 CHECK (seq >= 0),
    PRIMARY KEY (organization, digest, holder, owner, seq),
    CONSTRAINT payload_use_organization_digest_fkey FOREIGN KEY (organization, digest) REFERENCES payload (organization, digest)
);
COMMENT ON TABLE payload_use IS 'A row that refers to a payload. Deleted with that row.';
CREATE INDEX payload_use_of_owner ON payload_use (owner, holder, seq);
CREATE TRIGGER payload_let_go AFTER DELETE ON payload_use REFERENCING OLD TABLE AS gone EXECUTE FUNCTION payload_let_go();

-- +goose Down
DROP TABLE payload_use;
DROP TABLE payload;
DROP FUNCTION payload_let_go;
