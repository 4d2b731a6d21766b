-- +goose Up

-- The latest versions of the policy sets that decide about calls of Functions, as the domain service reports them. Rows are kept: a set that
-- is off, or says nothing of calls any more, is reported so.
CREATE TABLE call_policy (
    organization bigint  NOT NULL CHECK (organization > 0),
    name         text    NOT NULL,
    version      integer NOT NULL CHECK (version > 0),
    mode         text    NOT NULL,
    time_zone    text    NOT NULL,
    -- In Cedar; empty where none of them is about calls.
    policies     text    NOT NULL CHECK (octet_length(policies) <= 65536),
    -- 0 for none: it is about the organization then.
    application  bigint  NOT NULL CHECK (application >= 0),
    environment  bigint  NOT NULL CHECK (environment >= 0),
    PRIMARY KEY (organization, name)
);

-- 3 is a call that waits for an approval, and that nobody carries out.
ALTER TABLE call DROP CONSTRAINT call_location_check, ADD CONSTRAINT call_location_check CHECK (location IN (0, 1, 2, 3));

-- +goose Down
DELETE FROM call WHERE location = 3;
ALTER TABLE call DROP CONSTRAINT call_location_check, ADD CONSTRAINT call_location_check CHECK (location IN (0, 1, 2));
DROP TABLE call_policy;
