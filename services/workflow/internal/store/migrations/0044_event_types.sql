-- +goose Up

-- Types of events that an organization has declared for its programs. A row ends when the type is deleted; events of the type stay.
CREATE TABLE event_type (
    organization bigint      NOT NULL CHECK (organization > 0),
    type         text        NOT NULL CHECK (type <> '' AND type NOT LIKE 'com.gitlab.cd.%'),
    description  text        NOT NULL,
    -- A JSON schema of the data.
    schema       json        NOT NULL,
    version      integer     NOT NULL CHECK (version > 0),
    declared_by  text        NOT NULL,
    declared_at  timestamptz NOT NULL,
    PRIMARY KEY (organization, type)
);

-- +goose Down
DROP TABLE event_type;
