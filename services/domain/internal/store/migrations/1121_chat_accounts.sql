-- Answers from chats (D63): the presses of buttons that chat servers have sent, and whose chat account is which member's.

-- +goose Up
CREATE TABLE cd_chat_accounts (
    organization_id bigint NOT NULL CONSTRAINT cd_chat_accounts_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    kind            text NOT NULL CONSTRAINT cd_chat_accounts_kind_is_known CHECK (kind IN ('slack', 'mattermost')),
    workspace       text NOT NULL CONSTRAINT cd_chat_accounts_workspace_is_bounded CHECK (octet_length(workspace) BETWEEN 1 AND 1000),
    chat_user       text NOT NULL CONSTRAINT cd_chat_accounts_user_is_bounded CHECK (octet_length(chat_user) BETWEEN 1 AND 255),
    chat_name       text NOT NULL CONSTRAINT cd_chat_accounts_name_is_bounded CHECK (octet_length(chat_name) <= 255),
    member_id       bigint NOT NULL,
    key_digest      bytea NOT NULL CONSTRAINT cd_chat_accounts_key_is_a_digest CHECK (octet_length(key_digest) = 32),
    linked_at       timestamptz NOT NULL,
    removed_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_chat_accounts_member FOREIGN KEY (organization_id, member_id) REFERENCES cd_members (organization_id, id)
);
CREATE UNIQUE INDEX cd_chat_accounts_user_is_one_members ON cd_chat_accounts (organization_id, kind, workspace, chat_user) WHERE removed_at IS NULL;
CREATE UNIQUE INDEX cd_chat_accounts_member_has_one ON cd_chat_accounts (organization_id, kind, workspace, member_id) WHERE removed_at IS NULL;
COMMENT ON TABLE cd_chat_accounts IS 'Which member a user of a chat is: the one who has signed in and linked the account. Rows are kept; removed_at ends one.';
COMMENT ON COLUMN cd_chat_accounts.workspace IS 'The team in Slack, the URL of the server of Mattermost: users have their numbers there.';
COMMENT ON COLUMN cd_chat_accounts.key_digest IS 'A digest of the secret with which the chat proved the user when the account was linked: with another secret, it has to be linked again.';
CREATE TRIGGER cd_chat_accounts_touch BEFORE UPDATE ON cd_chat_accounts FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_chat_requests (
    organization_id bigint NOT NULL CONSTRAINT cd_chat_requests_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    channel_id      bigint NOT NULL,
    digest          bytea NOT NULL CONSTRAINT cd_chat_requests_digest_is_one CHECK (octet_length(digest) = 32),
    workspace       text NOT NULL CONSTRAINT cd_chat_requests_workspace_is_bounded CHECK (octet_length(workspace) BETWEEN 1 AND 1000),
    chat_user       text NOT NULL CONSTRAINT cd_chat_requests_user_is_bounded CHECK (octet_length(chat_user) BETWEEN 1 AND 255),
    chat_name       text NOT NULL CONSTRAINT cd_chat_requests_name_is_bounded CHECK (octet_length(chat_name) <= 255),
    key_digest      bytea NOT NULL CONSTRAINT cd_chat_requests_key_is_a_digest CHECK (octet_length(key_digest) = 32),
    received_at     timestamptz NOT NULL,
    outcome         text NOT NULL DEFAULT '' CONSTRAINT cd_chat_requests_outcome_is_known CHECK (outcome IN ('', 'answered', 'refused', 'unlinked')),
    linked_at       timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_chat_requests_once UNIQUE (organization_id, channel_id, digest),
    CONSTRAINT cd_chat_requests_channel FOREIGN KEY (organization_id, channel_id) REFERENCES cd_notification_channels (organization_id, id)
);
CREATE INDEX cd_chat_requests_by_time ON cd_chat_requests (organization_id, received_at);
COMMENT ON TABLE cd_chat_requests IS 'Presses of buttons that chat servers have sent, each once, so that a repeated one is no second answer. Rows end after 30 days.';
COMMENT ON COLUMN cd_chat_requests.digest IS 'Identifies the press: of its signature, or of what the server calls it.';
COMMENT ON COLUMN cd_chat_requests.outcome IS 'What became of it; empty while that is open, as after a crash: a repeated one is taken again then.';
COMMENT ON COLUMN cd_chat_requests.linked_at IS 'When the account was linked with the link that answered the press; null if it was not. Such a link works once.';
CREATE TRIGGER cd_chat_requests_touch BEFORE UPDATE ON cd_chat_requests FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_forget_chat_requests(before timestamptz, most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH own AS (
        SELECT NULLIF(current_setting('lockstep.organization', true), '')::bigint AS id
    ), old AS (
        SELECT r.organization_id, r.id FROM cd_chat_requests r JOIN own ON own.id = r.organization_id
        WHERE r.received_at < before ORDER BY r.received_at LIMIT most
    ), gone AS (
        DELETE FROM cd_chat_requests r USING old WHERE r.organization_id = old.organization_id AND r.id = old.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_chat_requests(timestamptz, integer) IS 'Presses are no record: the journals have what they answered.';

-- +goose Down
DROP FUNCTION cd_forget_chat_requests(timestamptz, integer);
DROP TABLE cd_chat_requests;
DROP TABLE cd_chat_accounts;
