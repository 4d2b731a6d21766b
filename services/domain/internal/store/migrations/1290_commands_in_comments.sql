-- Commands in comments on pull requests (D63): which hooks take them, the codes that forge accounts are linked with, each comment once, and
-- that its answer is to be written.

-- +goose Up
ALTER TABLE cd_forge_hooks ADD COLUMN commands boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cd_forge_hooks.commands IS 'Whether commands are taken that comments on pull requests begin with.';

ALTER TABLE cd_chat_accounts DROP CONSTRAINT cd_chat_accounts_kind_is_known,
    ADD CONSTRAINT cd_chat_accounts_kind_is_known CHECK (kind IN ('slack', 'mattermost', 'forge'));
COMMENT ON COLUMN cd_chat_accounts.workspace IS 'The team in Slack, the URL of the server of Mattermost, the server and the hook of a forge: users have their numbers there.';

CREATE TABLE cd_forge_codes (
    organization_id bigint NOT NULL CONSTRAINT cd_forge_codes_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    hook_id         bigint NOT NULL,
    member_id       bigint NOT NULL,
    account         text NOT NULL CONSTRAINT cd_forge_codes_account_is_bounded CHECK (octet_length(account) BETWEEN 1 AND 255),
    permissions     smallint NOT NULL CONSTRAINT cd_forge_codes_permissions_are_known CHECK (permissions BETWEEN 1 AND 511),
    digest          bytea NOT NULL CONSTRAINT cd_forge_codes_digest_is_one CHECK (octet_length(digest) = 32),
    expires_at      timestamptz NOT NULL,
    used_at         timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_forge_codes_member_has_one UNIQUE (organization_id, hook_id, member_id),
    CONSTRAINT cd_forge_codes_once UNIQUE (organization_id, digest),
    CONSTRAINT cd_forge_codes_hook FOREIGN KEY (organization_id, hook_id) REFERENCES cd_forge_hooks (organization_id, id),
    CONSTRAINT cd_forge_codes_member FOREIGN KEY (organization_id, member_id) REFERENCES cd_members (organization_id, id)
);
COMMENT ON TABLE cd_forge_codes IS 'Codes that members have made to link their account at a forge, by writing the code into a comment there. A member has one for each hook; a new one replaces it.';
COMMENT ON COLUMN cd_forge_codes.account IS 'What the account is called at the forge, in lower case: nobody else can use the code, although a comment can be read by others.';
COMMENT ON COLUMN cd_forge_codes.permissions IS 'What the account will be good for at most: what that was good for which made the code.';
COMMENT ON COLUMN cd_forge_codes.digest IS 'Of the code, which is not stored.';
COMMENT ON COLUMN cd_forge_codes.used_at IS 'When it linked an account; null if it has not. It works once.';
CREATE TRIGGER cd_forge_codes_touch BEFORE UPDATE ON cd_forge_codes FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_forge_comments (
    organization_id bigint NOT NULL CONSTRAINT cd_forge_comments_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    hook_id         bigint NOT NULL,
    name            text NOT NULL CONSTRAINT cd_forge_comments_name_is_bounded CHECK (octet_length(name) BETWEEN 1 AND 1000),
    number          bigint NOT NULL CONSTRAINT cd_forge_comments_number_is_one CHECK (number > 0),
    comment_id      bigint NOT NULL CONSTRAINT cd_forge_comments_comment_is_one CHECK (comment_id > 0),
    author_id       bigint NOT NULL CONSTRAINT cd_forge_comments_author_is_one CHECK (author_id > 0),
    author          text NOT NULL CONSTRAINT cd_forge_comments_author_is_bounded CHECK (octet_length(author) BETWEEN 1 AND 255),
    command         text NOT NULL CONSTRAINT cd_forge_comments_command_is_bounded CHECK (octet_length(command) BETWEEN 1 AND 2000),
    received_at     timestamptz NOT NULL,
    begun_at        timestamptz,
    outcome         text NOT NULL DEFAULT ''
        CONSTRAINT cd_forge_comments_outcome_is_known CHECK (outcome IN ('', 'answered', 'refused', 'unlinked', 'linked', 'ignored')),
    answer          text NOT NULL DEFAULT '' CONSTRAINT cd_forge_comments_answer_is_bounded CHECK (octet_length(answer) <= 8000),
    member_id       bigint,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    digest          bytea NOT NULL CONSTRAINT cd_forge_comments_digest_is_one CHECK (octet_length(digest) = 32),
    CONSTRAINT cd_forge_comments_once UNIQUE (organization_id, name, comment_id, hook_id),
    CONSTRAINT cd_forge_comments_hook FOREIGN KEY (organization_id, hook_id) REFERENCES cd_forge_hooks (organization_id, id),
    CONSTRAINT cd_forge_comments_member FOREIGN KEY (organization_id, member_id) REFERENCES cd_members (organization_id, id)
);
CREATE INDEX cd_forge_comments_by_pull ON cd_forge_comments (organization_id, name, number, id) WHERE answer <> '';
CREATE INDEX cd_forge_comments_by_author ON cd_forge_comments (organization_id, author_id, received_at);
CREATE INDEX cd_forge_comments_by_time ON cd_forge_comments (organization_id, received_at);
CREATE INDEX cd_forge_comments_by_hook ON cd_forge_comments (organization_id, hook_id, received_at);
COMMENT ON TABLE cd_forge_comments IS 'Comments with commands that forges have reported, each once for a hook, so that a repeated one is no second command. Rows end after 30 days.';
COMMENT ON COLUMN cd_forge_comments.name IS 'Host and path of the repository, in lower case; number is that of the pull request.';
COMMENT ON COLUMN cd_forge_comments.comment_id IS 'What the forge calls the comment.';
COMMENT ON COLUMN cd_forge_comments.author_id IS 'What the forge calls who has written it; author is the name, which may change.';
COMMENT ON COLUMN cd_forge_comments.digest IS 'Of the first line, which is not stored: it may have a reason, or a code.';
COMMENT ON COLUMN cd_forge_comments.begun_at IS 'When it was begun to be performed; null before.';
COMMENT ON COLUMN cd_forge_comments.outcome IS 'What became of it; empty while that is open, as after a crash.';
COMMENT ON COLUMN cd_forge_comments.answer IS 'What is written into the comment with answers; empty for nothing.';
COMMENT ON COLUMN cd_forge_comments.member_id IS 'The member who has linked the account; null for none.';
CREATE TRIGGER cd_forge_comments_touch BEFORE UPDATE ON cd_forge_comments FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_forget_forge_comments(before timestamptz, most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH own AS (
        SELECT NULLIF(current_setting('lockstep.organization', true), '')::bigint AS id
    ), old AS (
        SELECT c.organization_id, c.id FROM cd_forge_comments c JOIN own ON own.id = c.organization_id
        WHERE c.received_at < before ORDER BY c.received_at LIMIT most
    ), gone AS (
        DELETE FROM cd_forge_comments c USING old WHERE c.organization_id = old.organization_id AND c.id = old.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_forge_comments(timestamptz, integer) IS 'Comments are no record: the journals have what they answered.';

ALTER TABLE cd_forge_pulls ADD COLUMN answers integer NOT NULL DEFAULT 0, ADD COLUMN answers_begun integer NOT NULL DEFAULT 0,
    ADD COLUMN answers_written integer NOT NULL DEFAULT 0,
    DROP CONSTRAINT cd_forge_pulls_step_is_known, ADD CONSTRAINT cd_forge_pulls_step_is_known CHECK (step IN ('read', 'write', 'answer'));
COMMENT ON COLUMN cd_forge_pulls.step IS 'What the present run does: it reads the pull request, writes the plan into its comment, or the answers into another one.';
COMMENT ON COLUMN cd_forge_pulls.answers IS 'Counts the answers to commands on it; answers_begun is what the present run writes, answers_written what the comment has.';

CREATE INDEX cd_deployment_links_by_page ON cd_deployment_links (organization_id, md5(lower(regexp_replace(url, '^https?://', '')))) WHERE url <> '';

-- +goose Down
DROP INDEX cd_deployment_links_by_page;
-- The rows of all organizations.
ALTER TABLE cd_forge_pulls NO FORCE ROW LEVEL SECURITY;
UPDATE cd_forge_pulls SET step = 'write' WHERE step = 'answer';
ALTER TABLE cd_forge_pulls FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_forge_pulls DROP COLUMN answers, DROP COLUMN answers_begun, DROP COLUMN answers_written,
    DROP CONSTRAINT cd_forge_pulls_step_is_known, ADD CONSTRAINT cd_forge_pulls_step_is_known CHECK (step IN ('read', 'write'));
COMMENT ON COLUMN cd_forge_pulls.step IS 'What the present run does: it reads the pull request, or writes the comment.';
DROP FUNCTION cd_forget_forge_comments(timestamptz, integer);
DROP TABLE cd_forge_comments;
DROP TABLE cd_forge_codes;
ALTER TABLE cd_chat_accounts NO FORCE ROW LEVEL SECURITY;
DELETE FROM cd_chat_accounts WHERE kind = 'forge';
ALTER TABLE cd_chat_accounts FORCE ROW LEVEL SECURITY;
COMMENT ON COLUMN cd_chat_accounts.workspace IS 'The team in Slack, the URL of the server of Mattermost: users have their numbers there.';
ALTER TABLE cd_chat_accounts DROP CONSTRAINT cd_chat_accounts_kind_is_known,
    ADD CONSTRAINT cd_chat_accounts_kind_is_known CHECK (kind IN ('slack', 'mattermost'));
ALTER TABLE cd_forge_hooks DROP COLUMN commands;
