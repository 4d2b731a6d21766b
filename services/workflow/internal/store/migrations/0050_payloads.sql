-- +goose Up

-- Values that are larger than 64 KiB, once for each organization. Rows of other tables refer to them by digest. A row ends some time after
-- nothing refers to it any more.
CREATE TABLE payload (
    organization bigint      NOT NULL CHECK (organization > 0),
    -- SHA-256 of data.
    digest       bytea       NOT NULL CHECK (octet_length(digest) = 32),
    -- JSON, exactly as it was stored.
    data         bytea       NOT NULL,
    stored_at    timestamptz NOT NULL,
    -- Whether nothing may refer to it any more. That is found out by the process that deletes it.
    loose        boolean     NOT NULL,
    PRIMARY KEY (organization, digest)
);
CREATE INDEX payload_loose ON payload (organization, digest) WHERE loose;
COMMENT ON TABLE payload IS 'A large value. Deleted some time after the last row that refers to it.';

-- What refers to payloads. A row ends with the row that it stands for.
CREATE TABLE payload_use (
    organization bigint NOT NULL CHECK (organization > 0),
    digest       bytea  NOT NULL,
    holder       text   NOT NULL CHECK (holder IN ('event', 'entry', 'start', 'generation')),
    -- The number of the event, or of the execution.
    owner        bigint NOT NULL,
    -- The number of the entry or generation; 0 for others.
    seq          bigint NOT NULL DEFAULT 0 CHECK (seq >= 0),
    PRIMARY KEY (organization, digest, holder, owner, seq),
    FOREIGN KEY (organization, digest) REFERENCES payload
);
CREATE INDEX payload_use_of_owner ON payload_use (owner, holder, seq);
COMMENT ON TABLE payload_use IS 'A row that refers to a payload. Deleted with that row.';

-- The epoch whose process understands references to payloads. They are written once all live processes do.
ALTER TABLE lease ADD COLUMN payloads bigint NOT NULL DEFAULT 0;

-- +goose StatementBegin
CREATE FUNCTION payload_let_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE payload SET loose = true
    FROM (SELECT DISTINCT gone.organization, gone.digest FROM gone ORDER BY 1, 2) AS g
    WHERE payload.organization = g.organization AND payload.digest = g.digest AND NOT payload.loose;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER payload_let_go AFTER DELETE ON payload_use REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION payload_let_go();

-- +goose Down

-- References become the values that they stand for.
-- +goose StatementBegin
DO $$
DECLARE
    used   record;
    marker text;
    whole  text;
BEGIN
    FOR used IN SELECT u.organization, u.digest, u.holder, u.owner, u.seq, p.data FROM payload_use u JOIN payload p USING (organization, digest) LOOP
        marker := '{"lockstep.dev/payload":"' || used.organization || '/' || encode(used.digest, 'hex') || '"}';
        whole := convert_from(used.data, 'UTF8');
        CASE used.holder
            WHEN 'event' THEN UPDATE event SET data = replace(data::text, marker, whole)::json WHERE id = used.owner;
            WHEN 'entry' THEN UPDATE entry SET value = replace(value::text, marker, whole)::json WHERE execution = used.owner AND seq = used.seq;
            WHEN 'start' THEN UPDATE execution SET inputs = replace(inputs::text, marker, whole)::json WHERE id = used.owner;
            ELSE UPDATE generation SET call = replace(call::text, marker, whole)::json WHERE execution = used.owner AND number = used.seq;
        END CASE;
    END LOOP;
END $$;
-- +goose StatementEnd
DROP TABLE payload_use;
DROP FUNCTION payload_let_go();
DROP TABLE payload;
ALTER TABLE lease DROP COLUMN payloads;
