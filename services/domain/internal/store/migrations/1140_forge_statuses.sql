-- Statuses of commits at forges (R3-09, D48, D64): which applications have theirs published, what may have changed, the statuses
-- with what became of each, and what is known of the servers that receive them.

-- +goose Up
CREATE TABLE cd_forge_mirrors (
    organization_id bigint NOT NULL CONSTRAINT cd_forge_mirrors_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    environment_ids bigint[] NOT NULL CONSTRAINT cd_forge_mirrors_is_bounded CHECK (cardinality(environment_ids) <= 100),
    credential      text NOT NULL CONSTRAINT cd_forge_mirrors_credential_is_bounded CHECK (octet_length(credential) <= 63),
    enabled         boolean NOT NULL,
    principal_type  text NOT NULL CONSTRAINT cd_forge_mirrors_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    changed_at      timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, application_id),
    CONSTRAINT cd_forge_mirrors_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id)
);
COMMENT ON TABLE cd_forge_mirrors IS 'Applications whose checks are published as statuses of commits; none is without a row. Rows end with the application.';
COMMENT ON COLUMN cd_forge_mirrors.environment_ids IS 'The environments whose checks are published; empty for all.';
COMMENT ON COLUMN cd_forge_mirrors.credential IS 'The name of a credential; empty for the one with the longest matching URL.';
CREATE TRIGGER cd_forge_mirrors_touch BEFORE UPDATE ON cd_forge_mirrors FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_forge_marks (
    organization_id bigint NOT NULL CONSTRAINT cd_forge_marks_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    version_set_id  bigint NOT NULL,
    due_at          timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id)
);
COMMENT ON TABLE cd_forge_marks IS 'Version sets whose statuses may have changed, of applications that are published. Each cause adds a row, so that none waits for another one or for what looks at them; rows are deleted when that was done.';
CREATE INDEX cd_forge_marks_due ON cd_forge_marks (organization_id, due_at, id);
CREATE INDEX cd_forge_marks_by_subject ON cd_forge_marks (organization_id, application_id, version_set_id);
CREATE TRIGGER cd_forge_marks_touch BEFORE UPDATE ON cd_forge_marks FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_forge_statuses (
    organization_id bigint NOT NULL CONSTRAINT cd_forge_statuses_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    repository      text NOT NULL CONSTRAINT cd_forge_statuses_repository_is_bounded CHECK (octet_length(repository) BETWEEN 1 AND 1000),
    host            text NOT NULL CONSTRAINT cd_forge_statuses_host_is_bounded CHECK (octet_length(host) BETWEEN 1 AND 300),
    commit_sha      text NOT NULL CONSTRAINT cd_forge_statuses_commit_is_one CHECK (commit_sha ~ '^[0-9a-f]{40}([0-9a-f]{24})?$'),
    name            text NOT NULL CONSTRAINT cd_forge_statuses_name_is_ours CHECK (name LIKE 'lockstep/%' AND octet_length(name) <= 255),
    parts           jsonb NOT NULL CONSTRAINT cd_forge_statuses_parts_is_an_object CHECK (jsonb_typeof(parts) = 'object'),
    credential      text NOT NULL,
    revision        integer NOT NULL DEFAULT 1,
    sent_revision   integer NOT NULL DEFAULT 0,
    state           text NOT NULL DEFAULT 'pending' CONSTRAINT cd_forge_statuses_state_is_known CHECK (state IN ('pending', 'sending', 'sent', 'failed')),
    due_at          timestamptz NOT NULL,
    attempts        integer NOT NULL DEFAULT 0,
    run             integer NOT NULL DEFAULT 0,
    started         boolean NOT NULL DEFAULT false,
    inputs          jsonb,
    begun_revision  integer NOT NULL DEFAULT 0,
    error           text NOT NULL DEFAULT '' CONSTRAINT cd_forge_statuses_error_is_bounded CHECK (octet_length(error) <= 4000),
    sent_at         timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_forge_statuses_one_of_a_name UNIQUE (organization_id, repository, commit_sha, name),
    CONSTRAINT cd_forge_statuses_sending_has_inputs CHECK (state <> 'sending' OR inputs IS NOT NULL AND run > 0),
    CONSTRAINT cd_forge_statuses_failed_says_why CHECK (state <> 'failed' OR error <> '')
);
CREATE INDEX cd_forge_statuses_due ON cd_forge_statuses (organization_id, due_at, id) WHERE state IN ('pending', 'sending');
CREATE INDEX cd_forge_statuses_sending ON cd_forge_statuses (organization_id, host) WHERE state = 'sending';
CREATE INDEX cd_forge_statuses_settled ON cd_forge_statuses (organization_id, updated_at) WHERE state IN ('sent', 'failed');
CREATE INDEX cd_forge_statuses_of_commit ON cd_forge_statuses (organization_id, commit_sha, id);
CREATE INDEX cd_forge_statuses_of_state ON cd_forge_statuses (organization_id, state, id);
COMMENT ON TABLE cd_forge_statuses IS 'Statuses of commits at forges, one of each name: a copy of what checks have come to, which no decision depends on. Rows end 30 days after their last change.';
COMMENT ON COLUMN cd_forge_statuses.parts IS 'What each application says, by its number: set, phase, description and link. The worst of them is published.';
COMMENT ON COLUMN cd_forge_statuses.revision IS 'Counts what it was to say; sent_revision is what the forge has.';
COMMENT ON COLUMN cd_forge_statuses.due_at IS 'When it is sent, or looked at again while a run sends it.';
COMMENT ON COLUMN cd_forge_statuses.run IS 'Counts the runs that were begun for it, and names the present one together with its id.';
COMMENT ON COLUMN cd_forge_statuses.started IS 'Whether the engine has the present run.';
COMMENT ON COLUMN cd_forge_statuses.inputs IS 'Of the present run: begun again, it is begun with the same.';
CREATE TRIGGER cd_forge_statuses_touch BEFORE UPDATE ON cd_forge_statuses FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_forge_hosts (
    organization_id bigint NOT NULL CONSTRAINT cd_forge_hosts_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    host            text NOT NULL CONSTRAINT cd_forge_hosts_host_is_bounded CHECK (octet_length(host) BETWEEN 1 AND 300),
    paused_until    timestamptz NOT NULL DEFAULT 'epoch',
    problem         text NOT NULL DEFAULT '' CONSTRAINT cd_forge_hosts_problem_is_bounded CHECK (octet_length(problem) <= 4000),
    failures        integer NOT NULL DEFAULT 0,
    window_at       timestamptz NOT NULL DEFAULT 'epoch',
    window_count    integer NOT NULL DEFAULT 0,
    quota_limit     bigint,
    quota_remaining bigint,
    quota_resets_at timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, host)
);
COMMENT ON TABLE cd_forge_hosts IS 'Servers that statuses are sent to, as far as an organization knows them. Rows are kept: there are few.';
COMMENT ON COLUMN cd_forge_hosts.paused_until IS 'Nothing is begun there before: the server does not answer, accepts no more requests, or has had enough of them.';
COMMENT ON COLUMN cd_forge_hosts.problem IS 'Why the last attempt failed because of the server; empty if it did not.';
COMMENT ON COLUMN cd_forge_hosts.failures IS 'How many attempts in succession failed because of the server.';
COMMENT ON COLUMN cd_forge_hosts.window_at IS 'When the present minute began, in which window_count statuses were begun.';
COMMENT ON COLUMN cd_forge_hosts.quota_limit IS 'How many requests it accepts, and with the next two columns how many still and until when; null where it does not say.';
CREATE TRIGGER cd_forge_hosts_touch BEFORE UPDATE ON cd_forge_hosts FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_mark_forge_subject(of_organization bigint, of_application bigint, of_set bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO cd_forge_marks (organization_id, application_id, version_set_id, due_at)
    SELECT of_organization, of_application, of_set, 'epoch'
    WHERE EXISTS (SELECT FROM cd_forge_mirrors m WHERE m.organization_id = of_organization AND m.application_id = of_application AND m.enabled)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_mark_forge_subject(bigint, bigint, bigint) IS 'Has the statuses of a version set looked at, if the application is published.';

-- +goose StatementBegin
CREATE FUNCTION cd_mark_forge_report() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM cd_mark_forge_subject(NEW.organization_id, NEW.application_id, NEW.version_set_id);
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION cd_mark_forge_rollout() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM cd_mark_forge_subject(r.organization_id, r.application_id, r.version_set_id)
        FROM cd_rollouts r WHERE r.organization_id = NEW.organization_id AND r.id = NEW.rollout_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER cd_check_statuses_mark_forge AFTER INSERT ON cd_check_statuses FOR EACH ROW EXECUTE FUNCTION cd_mark_forge_report();
CREATE TRIGGER cd_passage_reviews_mark_forge AFTER INSERT ON cd_passage_reviews FOR EACH ROW EXECUTE FUNCTION cd_mark_forge_rollout();
CREATE TRIGGER cd_rollout_checks_mark_forge AFTER INSERT ON cd_rollout_checks FOR EACH ROW EXECUTE FUNCTION cd_mark_forge_rollout();

-- +goose StatementBegin
CREATE FUNCTION cd_mark_forge_stop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM cd_mark_forge_subject(r.organization_id, r.application_id, s.id)
        FROM cd_rollouts r, unnest(ARRAY[r.version_set_id, CASE WHEN NEW.state = 'completed' THEN NEW.previous_version_set_id END]) AS s (id)
        WHERE r.organization_id = NEW.organization_id AND r.id = NEW.rollout_id AND s.id IS NOT NULL;
    RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_mark_forge_stop IS 'What a rollout has replaced says so, once: when it has.';
CREATE TRIGGER cd_rollout_environments_mark_forge AFTER INSERT OR UPDATE OF state ON cd_rollout_environments
    FOR EACH ROW EXECUTE FUNCTION cd_mark_forge_stop();

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_forge(until timestamptz) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    -- From organization to organization along the indexes: what it costs is how many organizations have something open, not how much.
    RETURN QUERY WITH RECURSIVE marked AS (
        (SELECT k.organization_id FROM cd_forge_marks k ORDER BY k.organization_id LIMIT 1)
        UNION ALL
        SELECT (SELECT k.organization_id FROM cd_forge_marks k WHERE k.organization_id > m.organization_id ORDER BY k.organization_id LIMIT 1)
        FROM marked m WHERE m.organization_id IS NOT NULL
    ), unsent AS (
        (SELECT s.organization_id FROM cd_forge_statuses s WHERE s.state IN ('pending', 'sending') ORDER BY s.organization_id LIMIT 1)
        UNION ALL
        SELECT (SELECT s.organization_id FROM cd_forge_statuses s WHERE s.state IN ('pending', 'sending') AND s.organization_id > u.organization_id
            ORDER BY s.organization_id LIMIT 1)
        FROM unsent u WHERE u.organization_id IS NOT NULL
    )
    SELECT m.organization_id FROM marked m WHERE EXISTS (
        SELECT FROM cd_forge_marks k WHERE k.organization_id = m.organization_id AND k.due_at <= until)
    UNION
    SELECT u.organization_id FROM unsent u WHERE EXISTS (
        SELECT FROM cd_forge_statuses s WHERE s.organization_id = u.organization_id AND s.state IN ('pending', 'sending') AND s.due_at <= until);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_forge(timestamptz) IS 'The workers are for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_forge_statuses(before timestamptz, most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH own AS (
        SELECT NULLIF(current_setting('lockstep.organization', true), '')::bigint AS id
    ), settled AS (
        SELECT s.organization_id, s.id FROM cd_forge_statuses s JOIN own ON own.id = s.organization_id
        WHERE s.state IN ('sent', 'failed') AND s.updated_at < before ORDER BY s.updated_at LIMIT most
    ), gone AS (
        DELETE FROM cd_forge_statuses s USING settled WHERE s.organization_id = settled.organization_id AND s.id = settled.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_forge_statuses(timestamptz, integer) IS 'Published statuses are no record: the checks are.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_forge_marks(done bigint[]) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (DELETE FROM cd_forge_marks WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND id = ANY(done) RETURNING 1) SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_forge_marks(bigint[]) IS 'A mark is done with once what it is about was looked at.';

-- +goose Down
DROP TRIGGER cd_rollout_environments_mark_forge ON cd_rollout_environments;
DROP TRIGGER cd_rollout_checks_mark_forge ON cd_rollout_checks;
DROP TRIGGER cd_passage_reviews_mark_forge ON cd_passage_reviews;
DROP TRIGGER cd_check_statuses_mark_forge ON cd_check_statuses;
DROP FUNCTION cd_forget_forge_marks(bigint[]);
DROP FUNCTION cd_forget_forge_statuses(timestamptz, integer);
DROP FUNCTION cd_organizations_with_due_forge(timestamptz);
DROP FUNCTION cd_mark_forge_stop();
DROP FUNCTION cd_mark_forge_rollout();
DROP FUNCTION cd_mark_forge_report();
DROP FUNCTION cd_mark_forge_subject(bigint, bigint, bigint);
DROP TABLE cd_forge_hosts;
DROP TABLE cd_forge_statuses;
DROP TABLE cd_forge_marks;
DROP TABLE cd_forge_mirrors;
