-- +goose Up

-- The credentials of organizations, as the domain service reports them, with values that are sealed or references. Rows are kept: a
-- credential that was revoked is reported so, and has no value.
CREATE TABLE credential (
    organization bigint  NOT NULL CHECK (organization > 0),
    name         text    NOT NULL,
    -- Orders reports.
    sequence     bigint  NOT NULL,
    -- Counts the values.
    version      integer NOT NULL CHECK (version > 0),
    kind         text    NOT NULL,
    -- What the value may be sent to.
    url_prefixes text[]  NOT NULL,
    username     text    NOT NULL,
    header       text    NOT NULL,
    forge        text    NOT NULL,
    -- Empty for a sealed value.
    reference    text    NOT NULL,
    sealed       bytea   CHECK (octet_length(sealed) <= 98304),
    revoked      boolean NOT NULL,
    PRIMARY KEY (organization, name),
    CHECK (NOT revoked OR reference = '' AND sealed IS NULL)
);

-- +goose Down
DROP TABLE credential;
