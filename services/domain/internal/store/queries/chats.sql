-- name: InsertChatRequest :one
-- The one that was received before, at the address of any channel, for a repeated press.
INSERT INTO cd_chat_requests (organization_id, channel_id, digest, workspace, chat_user, chat_name, key_digest, received_at, command)
VALUES (@organization_id, @channel_id, @digest, @workspace, @chat_user, @chat_name, @key_digest, @received_at, @command)
ON CONFLICT (organization_id, digest) DO UPDATE SET received_at = cd_chat_requests.received_at RETURNING id, outcome;

-- name: SettleChatRequest :exec
UPDATE cd_chat_requests SET outcome = @outcome WHERE organization_id = @organization_id AND id = @id AND outcome = '';

-- name: LockChatRequest :one
SELECT r.*, c.kind, c.name AS channel FROM cd_chat_requests r
JOIN cd_notification_channels c ON c.organization_id = r.organization_id AND c.id = r.channel_id
WHERE r.organization_id = @organization_id AND r.id = @id FOR UPDATE OF r;

-- name: ChatRequestsOfUser :one
-- How many requests of a user came since an instant, up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM cd_chat_requests r
    WHERE r.organization_id = @organization_id AND r.received_at >= @since AND r.workspace = @workspace AND r.chat_user = @chat_user
    LIMIT @most
) found;

-- name: LinkChatRequest :exec
UPDATE cd_chat_requests SET linked_at = @at WHERE organization_id = @organization_id AND id = @id;

-- name: ForgetChatRequests :one
SELECT cd_forget_chat_requests(@before::timestamptz, @most::integer)::bigint;

-- name: ChatAccounts :many
SELECT a.*, m.name AS member FROM cd_chat_accounts a JOIN cd_members m ON m.organization_id = a.organization_id AND m.id = a.member_id
WHERE a.organization_id = @organization_id AND a.removed_at IS NULL ORDER BY a.id;

-- name: ChatAccountsOfUser :many
-- The account of a user of a chat, and the one that a member has there.
SELECT a.*, m.name AS member FROM cd_chat_accounts a JOIN cd_members m ON m.organization_id = a.organization_id AND m.id = a.member_id
WHERE a.organization_id = @organization_id AND a.kind = @kind AND a.workspace = @workspace AND a.removed_at IS NULL
  AND (a.chat_user = @chat_user OR a.member_id = @member_id) ORDER BY a.id;

-- name: InsertChatAccount :one
INSERT INTO cd_chat_accounts (organization_id, kind, workspace, chat_user, chat_name, member_id, key_digest, command_digest, permissions, linked_at)
VALUES (@organization_id, @kind, @workspace, @chat_user, @chat_name, @member_id, @key_digest, @command_digest, @permissions, @linked_at) RETURNING id;

-- name: RemoveChatAccount :exec
UPDATE cd_chat_accounts SET removed_at = @at WHERE organization_id = @organization_id AND id = @id AND removed_at IS NULL;

-- name: LockChatAccounts :exec
-- One at a time links accounts of an organization.
SELECT pg_advisory_xact_lock(hashtextextended('chat accounts', @organization_id::bigint));
