-- Slash commands in chats (D63): what an account is good for, the secret that proves commands, and each request once in an organization.

-- +goose Up
ALTER TABLE cd_chat_accounts
    ADD COLUMN command_digest bytea CONSTRAINT cd_chat_accounts_command_digest_is_one CHECK (octet_length(command_digest) = 32),
    ADD COLUMN permissions smallint NOT NULL DEFAULT 5 CONSTRAINT cd_chat_accounts_permissions_are_known CHECK (permissions BETWEEN 1 AND 511);
COMMENT ON COLUMN cd_chat_accounts.command_digest IS 'A digest of the secret that proved a slash command with whose link the account was linked; null for none.';
COMMENT ON COLUMN cd_chat_accounts.permissions IS 'What the account is good for at most, as bits of cd_access_tokens.scopes: what that was good for which linked it.';

ALTER TABLE cd_chat_requests ADD COLUMN command boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cd_chat_requests.command IS 'Whether it is a slash command, and not the press of a button.';

-- The rows of all organizations: the index sees them all.
ALTER TABLE cd_chat_requests NO FORCE ROW LEVEL SECURITY;
DELETE FROM cd_chat_requests r USING cd_chat_requests o
WHERE o.organization_id = r.organization_id AND o.digest = r.digest AND o.id < r.id;
ALTER TABLE cd_chat_requests FORCE ROW LEVEL SECURITY;
CREATE UNIQUE INDEX cd_chat_requests_once_in_all_channels ON cd_chat_requests (organization_id, digest);
COMMENT ON TABLE cd_chat_requests IS 'Presses of buttons and slash commands that chat servers have sent, each once, so that a repeated one is no second answer, also at the address of another channel. Rows end after 30 days.';

-- +goose Down
COMMENT ON TABLE cd_chat_requests IS 'Presses of buttons that chat servers have sent, each once, so that a repeated one is no second answer. Rows end after 30 days.';
DROP INDEX cd_chat_requests_once_in_all_channels;
ALTER TABLE cd_chat_requests DROP COLUMN command;
ALTER TABLE cd_chat_accounts DROP COLUMN permissions, DROP COLUMN command_digest;
