-- What commits change, by which steps of pipelines are skipped (R4-26).

-- +goose Up
CREATE TABLE cd_version_changes (
    organization_id bigint NOT NULL CONSTRAINT cd_version_changes_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    version_id      bigint NOT NULL,
    since           text NOT NULL,
    files           text NOT NULL,
    messages        text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_version_changes_are_unique UNIQUE (organization_id, version_id),
    CONSTRAINT cd_version_changes_version FOREIGN KEY (organization_id, version_id) REFERENCES cd_versions (organization_id, id),
    CONSTRAINT cd_version_changes_since_is_a_commit CHECK (since <> '' AND octet_length(since) <= 64),
    CONSTRAINT cd_version_changes_files_are_bounded CHECK (octet_length(files) <= 65536),
    CONSTRAINT cd_version_changes_messages_are_bounded CHECK (octet_length(messages) <= 262144)
);
COMMENT ON TABLE cd_version_changes IS 'What a version that is a commit changes; no row for an image, and where that is not known. A row never changes, and is kept with its version.';
COMMENT ON COLUMN cd_version_changes.since IS 'The commit that was the newest one of the source before.';
COMMENT ON COLUMN cd_version_changes.files IS 'The files of the source that differ between the two, one a line.';
COMMENT ON COLUMN cd_version_changes.messages IS 'The beginnings of the messages of all commits after the one up to the other, a JSON list of texts; empty if not all are known.';
CREATE TRIGGER cd_version_changes_touch BEFORE UPDATE ON cd_version_changes FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_version_changes;
