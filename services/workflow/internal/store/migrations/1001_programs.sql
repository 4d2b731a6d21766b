-- Programs, and the installation that runs them.

-- +goose Up
-- +goose StatementBegin
DO $$ BEGIN
    IF to_regclass('execution') IS NOT NULL THEN
        RAISE EXCEPTION 'these tables were made by a build from before version 0.1.0, whose migrations no longer exist: found execution; expected an empty schema'
            USING HINT = 'Let its runs end with that build, then start with another schema or database.';
    END IF;
END $$;
-- +goose StatementEnd

-- Source code by its SHA-256: main programs and modules alike. The same bytes are stored once.
CREATE TABLE program (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    source bytea NOT NULL
);

-- What distinguishes this installation from others that work in the same clusters: objects that it creates there carry the number. A restored
-- database is the same installation; so is a copy, which must not be given the agents of the original. One row, which never ends.
CREATE TABLE installation (
    one boolean DEFAULT true PRIMARY KEY CHECK (one),
    id  text NOT NULL CHECK (id ~ '^[0-9a-f]{16}$')
);
INSERT INTO installation (id) VALUES (left(replace(gen_random_uuid()::text, '-', ''), 16));

-- +goose StatementBegin
-- Ends the transaction with an error of the given code. A commit that expects what it nearly always finds sends all of its statements in one
-- journey: one that finds something else calls this, and nothing of the transaction happens.
CREATE FUNCTION refuse(code text, about text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = about;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION refuse;
DROP TABLE installation;
DROP TABLE program;
