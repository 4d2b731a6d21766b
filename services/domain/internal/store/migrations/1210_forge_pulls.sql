-- Plans in comments on pull requests (R4-27, D60): which hooks have them written, which applications are left out, and the pull requests with
-- what became of each.

-- +goose Up
ALTER TABLE cd_forge_hooks ADD COLUMN plans boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cd_forge_hooks.plans IS 'Whether pull requests that it reports are commented on.';
ALTER TABLE cd_forge_mirrors ADD COLUMN plans boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN cd_forge_mirrors.plans IS 'Whether comments on pull requests are about the application, too.';
ALTER TABLE cd_forge_hosts ADD COLUMN pull_window_at timestamptz NOT NULL DEFAULT 'epoch', ADD COLUMN pull_window_count integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN cd_forge_hosts.pull_window_at IS 'When the present minute began, in which pull_window_count pull requests were begun. They take nothing from what statuses may send.';

CREATE TABLE cd_forge_pulls (
    organization_id bigint NOT NULL CONSTRAINT cd_forge_pulls_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    hook_id         bigint NOT NULL,
    name            text NOT NULL CONSTRAINT cd_forge_pulls_name_is_bounded CHECK (octet_length(name) BETWEEN 1 AND 1000),
    number          bigint NOT NULL CONSTRAINT cd_forge_pulls_number_is_one CHECK (number > 0),
    repository      text NOT NULL CONSTRAINT cd_forge_pulls_repository_is_bounded CHECK (octet_length(repository) BETWEEN 1 AND 1024),
    host            text NOT NULL CONSTRAINT cd_forge_pulls_host_is_bounded CHECK (octet_length(host) BETWEEN 1 AND 300),
    asked_by        text[] NOT NULL CONSTRAINT cd_forge_pulls_asked_by_is_bounded CHECK (cardinality(asked_by) <= 10 AND octet_length(asked_by::text) <= 6000),
    revision        integer NOT NULL DEFAULT 1,
    begun_revision  integer NOT NULL DEFAULT 0,
    step            text NOT NULL DEFAULT 'read' CONSTRAINT cd_forge_pulls_step_is_known CHECK (step IN ('read', 'write')),
    reading         jsonb,
    head            text NOT NULL DEFAULT '' CONSTRAINT cd_forge_pulls_head_is_bounded CHECK (octet_length(head) <= 64),
    link            text NOT NULL DEFAULT '' CONSTRAINT cd_forge_pulls_link_is_bounded CHECK (octet_length(link) <= 2000),
    outcome         text NOT NULL DEFAULT '' CONSTRAINT cd_forge_pulls_outcome_is_bounded CHECK (octet_length(outcome) <= 4000),
    state           text NOT NULL DEFAULT 'pending' CONSTRAINT cd_forge_pulls_state_is_known CHECK (state IN ('pending', 'sending', 'sent', 'failed')),
    due_at          timestamptz NOT NULL,
    attempts        integer NOT NULL DEFAULT 0,
    run             integer NOT NULL DEFAULT 0,
    started         boolean NOT NULL DEFAULT false,
    inputs          jsonb,
    away_since      timestamptz,
    error           text NOT NULL DEFAULT '' CONSTRAINT cd_forge_pulls_error_is_bounded CHECK (octet_length(error) <= 4000),
    sent_at         timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_forge_pulls_one_of_a_number UNIQUE (organization_id, name, number),
    CONSTRAINT cd_forge_pulls_hook FOREIGN KEY (organization_id, hook_id) REFERENCES cd_forge_hooks (organization_id, id),
    CONSTRAINT cd_forge_pulls_sending_has_inputs CHECK (state <> 'sending' OR inputs IS NOT NULL AND run > 0),
    CONSTRAINT cd_forge_pulls_settled_has_a_time CHECK (state NOT IN ('sent', 'failed') OR sent_at IS NOT NULL),
    CONSTRAINT cd_forge_pulls_failed_says_why CHECK (state <> 'failed' OR error <> '')
);
CREATE INDEX cd_forge_pulls_due ON cd_forge_pulls (organization_id, due_at, id) WHERE state IN ('pending', 'sending');
CREATE INDEX cd_forge_pulls_sending ON cd_forge_pulls (organization_id, host) WHERE state = 'sending';
CREATE INDEX cd_forge_pulls_settled ON cd_forge_pulls (organization_id, sent_at) WHERE state IN ('sent', 'failed');
CREATE INDEX cd_forge_pulls_by_hook ON cd_forge_pulls (organization_id, hook_id);
COMMENT ON TABLE cd_forge_pulls IS 'Pull requests whose plans are written into a comment. Rows end 30 days after they were last done with; the comment is found again without them.';
COMMENT ON COLUMN cd_forge_pulls.name IS 'Host and path of the repository, in lower case; repository is its address.';
COMMENT ON COLUMN cd_forge_pulls.asked_by IS 'The last ten who have asked by a comment, as the forge knows them: it is planned if one of them may write. Empty once that was done.';
COMMENT ON COLUMN cd_forge_pulls.revision IS 'Counts what was reported of it; begun_revision is what the present run is about.';
COMMENT ON COLUMN cd_forge_pulls.step IS 'What the present run does: it reads the pull request, or writes the comment.';
COMMENT ON COLUMN cd_forge_pulls.reading IS 'What the present run has read; null before that.';
COMMENT ON COLUMN cd_forge_pulls.head IS 'The last commit that was planned, and link where the comment is.';
COMMENT ON COLUMN cd_forge_pulls.outcome IS 'What became of it, in one sentence; empty before the first time.';
COMMENT ON COLUMN cd_forge_pulls.due_at IS 'When it is begun, or looked at again while a run is about it.';
COMMENT ON COLUMN cd_forge_pulls.sent_at IS 'When it was last done with, or given up.';
COMMENT ON COLUMN cd_forge_pulls.run IS 'Counts the runs that were begun for it, and names the present one together with its id.';
CREATE TRIGGER cd_forge_pulls_touch BEFORE UPDATE ON cd_forge_pulls FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_pulls(until timestamptz) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    -- From organization to organization along the index, as cd_organizations_with_due_forge.
    RETURN QUERY WITH RECURSIVE open AS (
        (SELECT p.organization_id FROM cd_forge_pulls p WHERE p.state IN ('pending', 'sending') ORDER BY p.organization_id LIMIT 1)
        UNION ALL
        SELECT (SELECT p.organization_id FROM cd_forge_pulls p WHERE p.state IN ('pending', 'sending') AND p.organization_id > o.organization_id
            ORDER BY p.organization_id LIMIT 1)
        FROM open o WHERE o.organization_id IS NOT NULL
    )
    SELECT o.organization_id FROM open o WHERE EXISTS (
        SELECT FROM cd_forge_pulls p WHERE p.organization_id = o.organization_id AND p.state IN ('pending', 'sending') AND p.due_at <= until);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_pulls(timestamptz) IS 'The workers are for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_forge_pulls(before timestamptz, most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH own AS (
        SELECT NULLIF(current_setting('lockstep.organization', true), '')::bigint AS id
    ), settled AS (
        SELECT p.organization_id, p.id FROM cd_forge_pulls p JOIN own ON own.id = p.organization_id
        WHERE p.state IN ('sent', 'failed') AND p.sent_at < before ORDER BY p.sent_at LIMIT most
    ), gone AS (
        DELETE FROM cd_forge_pulls p USING settled WHERE p.organization_id = settled.organization_id AND p.id = settled.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_forge_pulls(timestamptz, integer) IS 'A comment is no record: nothing is decided by it.';

-- +goose Down
DROP FUNCTION cd_forget_forge_pulls(timestamptz, integer);
DROP FUNCTION cd_organizations_with_due_pulls(timestamptz);
DROP TABLE cd_forge_pulls;
ALTER TABLE cd_forge_hosts DROP COLUMN pull_window_at, DROP COLUMN pull_window_count;
ALTER TABLE cd_forge_mirrors DROP COLUMN plans;
ALTER TABLE cd_forge_hooks DROP COLUMN plans;
