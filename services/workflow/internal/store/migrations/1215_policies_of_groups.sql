-- Policy sets of groups of applications, by their labels (D51).

-- +goose Up
ALTER TABLE call_policy ADD COLUMN application_labels jsonb CHECK (jsonb_typeof(application_labels) = 'object');
COMMENT ON COLUMN call_policy.application_labels IS 'The labels that an application has to have for the set to be about it; null for other scopes.';

-- +goose Down
ALTER TABLE call_policy DROP COLUMN application_labels;
