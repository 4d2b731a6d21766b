-- Policy sets of groups of applications, by their labels (D51).

-- +goose Up
ALTER TABLE cd_policy_sets ADD COLUMN application_labels jsonb
    CONSTRAINT cd_policy_sets_labels_are_some CHECK (jsonb_typeof(application_labels) = 'object' AND application_labels <> '{}'
        AND octet_length(application_labels::text) <= 16000);
ALTER TABLE cd_policy_sets DROP CONSTRAINT cd_policy_sets_scope_is_one;
ALTER TABLE cd_policy_sets ADD CONSTRAINT cd_policy_sets_scope_is_one CHECK (num_nonnulls(application_id, environment_id, application_labels) <= 1);
COMMENT ON TABLE cd_policy_sets IS 'Named sets of policies, each of the organization, of the applications with some labels, of one application or of one environment. Rows are kept: they are few, and decisions refer to them.';
COMMENT ON COLUMN cd_policy_sets.application_labels IS 'The labels that an application has to have for the set to concern it; null for other scopes.';

-- +goose Down
ALTER TABLE cd_policy_sets DROP CONSTRAINT cd_policy_sets_scope_is_one;
ALTER TABLE cd_policy_sets DROP COLUMN application_labels;
ALTER TABLE cd_policy_sets ADD CONSTRAINT cd_policy_sets_scope_is_one CHECK (application_id IS NULL OR environment_id IS NULL);
COMMENT ON TABLE cd_policy_sets IS 'Named sets of policies, each of the organization, of one application or of one environment. Rows are kept: they are few, and decisions refer to them.';
