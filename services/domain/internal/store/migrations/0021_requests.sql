-- What clients have asked for under a key of their own, so that asking again changes nothing twice.

-- +goose Up
CREATE TABLE cd_requests (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_requests_organization REFERENCES cd_organizations (id),
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    key             text NOT NULL CONSTRAINT cd_requests_key_is_given CHECK (key <> ''),
    fingerprint     bytea NOT NULL,
    answer          bytea,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_requests_key_is_unique UNIQUE (organization_id, principal_type, principal_id, key)
);
COMMENT ON COLUMN cd_requests.fingerprint IS 'SHA-256 of what was asked: the key stands for that, and for nothing else.';
COMMENT ON COLUMN cd_requests.answer IS 'What was answered, to be answered again; null while it is being carried out, and for ever if that was cut short. Empty where it is not kept: it has a token in it, or is too long.';
CREATE TRIGGER cd_requests_touch BEFORE UPDATE ON cd_requests FOR EACH ROW EXECUTE FUNCTION cd_touch();
CREATE TRIGGER cd_requests_question_is_immutable BEFORE UPDATE ON cd_requests FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'principal_type', 'principal_id', 'key', 'fingerprint', 'created_at');

-- +goose Down
DROP TABLE cd_requests;
