-- Statuses of commits that forges report (D48): the hooks of organizations, what was reported to them, and which version sets come from which
-- commit.

-- +goose Up
CREATE TABLE cd_forge_hooks (
    organization_id bigint NOT NULL CONSTRAINT cd_forge_hooks_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    key             text NOT NULL CONSTRAINT cd_forge_hooks_key_is_one CHECK (key ~ '^[0-9a-f]{16,64}$'),
    forge           text NOT NULL CONSTRAINT cd_forge_hooks_forge_is_known CHECK (forge IN ('github', 'gitlab', 'gitea')),
    repositories    text[] NOT NULL CONSTRAINT cd_forge_hooks_repositories_are_bounded CHECK (cardinality(repositories) BETWEEN 1 AND 20),
    check_keys      text[] NOT NULL CONSTRAINT cd_forge_hooks_check_keys_are_bounded CHECK (cardinality(check_keys) <= 50),
    principal_type  text NOT NULL CONSTRAINT cd_forge_hooks_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    removed_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_forge_hooks_one_of_a_key UNIQUE (organization_id, key)
);
COMMENT ON TABLE cd_forge_hooks IS 'Hooks to which forges report statuses of commits. Their secrets are not stored: the registry service derives them. Rows are kept, so that reports name their hook.';
COMMENT ON COLUMN cd_forge_hooks.key IS 'Names it at the registry service.';
COMMENT ON COLUMN cd_forge_hooks.repositories IS 'Patterns of the repositories that it may report about, as host/path.';
COMMENT ON COLUMN cd_forge_hooks.check_keys IS 'The checks that its reports count for; empty for all.';
COMMENT ON COLUMN cd_forge_hooks.removed_at IS 'Since when its reports count for nothing; null while they do.';
CREATE TRIGGER cd_forge_hooks_touch BEFORE UPDATE ON cd_forge_hooks FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_forge_reports (
    organization_id bigint NOT NULL CONSTRAINT cd_forge_reports_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    hook_id         bigint NOT NULL,
    repository      text NOT NULL CONSTRAINT cd_forge_reports_repository_is_bounded CHECK (octet_length(repository) BETWEEN 1 AND 1024),
    commit_sha      text NOT NULL CONSTRAINT cd_forge_reports_commit_is_one CHECK (commit_sha ~ '^[0-9a-f]{40}([0-9a-f]{24})?$'),
    context         text NOT NULL CONSTRAINT cd_forge_reports_context_is_not_ours CHECK (context NOT LIKE 'lockstep/%' AND octet_length(context) BETWEEN 1 AND 255),
    phase           text NOT NULL CONSTRAINT cd_forge_reports_phase_is_known CHECK (phase IN ('pending', 'success', 'failure')),
    description     text NOT NULL CONSTRAINT cd_forge_reports_description_is_bounded CHECK (length(description) <= 1000),
    link            text NOT NULL CONSTRAINT cd_forge_reports_link_is_bounded CHECK (length(link) <= 2000),
    observed_at     timestamptz NOT NULL,
    sequence        bigint NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_forge_reports_one_of_a_context UNIQUE (organization_id, commit_sha, repository, context, hook_id),
    CONSTRAINT cd_forge_reports_hook FOREIGN KEY (organization_id, hook_id) REFERENCES cd_forge_hooks (organization_id, id)
);
COMMENT ON TABLE cd_forge_reports IS 'The latest status of each context of a commit that a hook received. Rows end 90 days after their last change.';
COMMENT ON COLUMN cd_forge_reports.repository IS 'Host and path, in lower case.';
COMMENT ON COLUMN cd_forge_reports.observed_at IS 'When the forge had it, and with sequence, which the forge gives, which of two is later.';
CREATE INDEX cd_forge_reports_by_hook ON cd_forge_reports (organization_id, hook_id, updated_at);
CREATE INDEX cd_forge_reports_by_time ON cd_forge_reports (organization_id, updated_at);
CREATE TRIGGER cd_forge_reports_touch BEFORE UPDATE ON cd_forge_reports FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_forge_commits (
    organization_id bigint NOT NULL CONSTRAINT cd_forge_commits_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    version_set_id  bigint NOT NULL,
    commit_sha      text NOT NULL CONSTRAINT cd_forge_commits_commit_is_one CHECK (commit_sha ~ '^[0-9a-f]{40}([0-9a-f]{24})?$'),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, version_set_id, commit_sha),
    CONSTRAINT cd_forge_commits_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_forge_commits_version_set FOREIGN KEY (organization_id, version_set_id) REFERENCES cd_version_sets (organization_id, id)
);
COMMENT ON TABLE cd_forge_commits IS 'Which version sets that were rolled out come from a commit, in organizations with hooks: a report has their checks looked at. Rows end with the version set.';
CREATE INDEX cd_forge_commits_by_commit ON cd_forge_commits (organization_id, commit_sha);
CREATE TRIGGER cd_forge_commits_touch BEFORE UPDATE ON cd_forge_commits FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_mark_forge_subject(of_organization bigint, of_application bigint, of_set bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO cd_forge_marks (organization_id, application_id, version_set_id, due_at)
    SELECT of_organization, of_application, of_set, 'epoch'
    WHERE EXISTS (SELECT FROM cd_forge_mirrors m WHERE m.organization_id = of_organization AND m.application_id = of_application AND m.enabled)
       OR EXISTS (SELECT FROM cd_forge_hooks h WHERE h.organization_id = of_organization AND h.removed_at IS NULL)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_mark_forge_subject(bigint, bigint, bigint) IS 'Has the statuses of a version set looked at, if the application is published or forges report to the organization.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_forge_reports(before timestamptz, most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT r.organization_id, r.id FROM cd_forge_reports r
        WHERE r.organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND r.updated_at < before ORDER BY r.updated_at LIMIT most
    ), gone AS (
        DELETE FROM cd_forge_reports r USING old WHERE r.organization_id = old.organization_id AND r.id = old.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_forge_reports(timestamptz, integer) IS 'What counted for a check is recorded as a status of the check.';

-- +goose Down
DROP FUNCTION cd_forget_forge_reports(timestamptz, integer);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_mark_forge_subject(of_organization bigint, of_application bigint, of_set bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO cd_forge_marks (organization_id, application_id, version_set_id, due_at)
    SELECT of_organization, of_application, of_set, 'epoch'
    WHERE EXISTS (SELECT FROM cd_forge_mirrors m WHERE m.organization_id = of_organization AND m.application_id = of_application AND m.enabled)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_mark_forge_subject(bigint, bigint, bigint) IS 'Has the statuses of a version set looked at, if the application is published.';
DROP TABLE cd_forge_commits;
DROP TABLE cd_forge_reports;
DROP TABLE cd_forge_hooks;
