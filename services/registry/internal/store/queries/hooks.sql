-- name: RecordReported :many
-- RecordReported returns the ids that have not been recorded before.
INSERT INTO reported (id, hook, reference, reported_at, line)
SELECT unnest(@ids::uuid[]), @hook, unnest(@refs::text[]), @reported_at::timestamptz, NULLIF(unnest(@lines::text[]), '')::uuid
ORDER BY 1
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: Superseded :many
-- Superseded returns the recorded ids that are no longer the latest of their line.
SELECT t.id FROM reported t
WHERE t.id = ANY (@ids::uuid[]) AND t.reference <> (
    SELECT l.reference FROM reported l WHERE l.line = t.line ORDER BY l.seq DESC LIMIT 1
);

-- name: LastOfLine :one
SELECT id, reference FROM reported WHERE line = @line ORDER BY seq DESC LIMIT 1;

-- name: Hint :exec
-- Hint stores a hint, unless its event has been published. A repeated report makes it due again, even if it was given up. If it reports the
-- same digest, the time of the first report is kept.
INSERT INTO hint (id, hook, notification, reference, heard_at, next_at)
SELECT @id, @hook, @notification, @reference, @heard_at, @heard_at
WHERE NOT EXISTS (SELECT FROM reported t WHERE t.id = @id)
ON CONFLICT (id) DO UPDATE
SET heard        = hint.heard + 1,
    notification = excluded.notification || CASE
        WHEN hint.notification ->> 'Believed' = 'true' AND hint.notification ->> 'Digest' = excluded.notification ->> 'Digest' AND hint.notification ->> 'PublishedAt' <> ''
        THEN jsonb_build_object('PublishedAt', hint.notification -> 'PublishedAt') ELSE '{}' END,
    reference    = excluded.reference,
    heard_at     = excluded.heard_at,
    attempts     = 0,
    next_at      = excluded.next_at;

-- name: Claim :many
-- Claim returns due hints; other processes skip them until the lease expires.
UPDATE hint
SET next_at = @until::timestamptz, attempts = attempts + 1
WHERE id = ANY (ARRAY(
    SELECT h.id FROM hint h
    WHERE h.next_at <= @now::timestamptz
    ORDER BY h.next_at
    LIMIT @most
    FOR UPDATE SKIP LOCKED
))
RETURNING id, hook, notification, heard, heard_at, attempts;

-- name: Settle :exec
DELETE FROM hint WHERE id = @id AND heard = @heard;

-- name: Later :exec
-- Later changes nothing if the hint was reported again meanwhile: it stays due.
UPDATE hint SET last_error = @last_error, next_at = sqlc.narg(next_at)
WHERE id = @id AND heard = @heard;

-- name: Forget :exec
DELETE FROM reported WHERE reported_at < @before::timestamptz;

-- name: ForgetHints :exec
DELETE FROM hint WHERE next_at IS NULL AND heard_at < @before::timestamptz;

-- name: LastReported :many
SELECT t.hook, t.reference, t.reported_at
FROM unnest(@hooks::text[]) AS wanted (name)
CROSS JOIN LATERAL (
    SELECT * FROM reported WHERE reported.hook = wanted.name ORDER BY reported.reported_at DESC LIMIT 1
) AS t;

-- name: Waiting :many
SELECT hook, reference, heard_at, attempts, last_error, next_at FROM hint
WHERE hook = ANY (@hooks::text[])
ORDER BY heard_at
LIMIT 200;

-- name: LockRefusals :exec
-- LockRefusals serializes the deliveries of one sender, which would otherwise wait for each other's rows.
SELECT pg_advisory_xact_lock(hashtextextended('registry refusals ' || @sender::text, 0));

-- name: Refuse :exec
INSERT INTO refusal (sender, what, reason, first_at, last_at)
SELECT @sender, unnest(@whats::text[]), unnest(@reasons::text[]), @at::timestamptz, @at::timestamptz
ON CONFLICT (sender, what, reason) DO UPDATE
SET times   = refusal.times + 1,
    last_at = excluded.last_at;

-- name: TrimRefusals :exec
DELETE FROM refusal WHERE refusal.sender = @sender AND id NOT IN (
    SELECT r.id FROM refusal r WHERE r.sender = @sender ORDER BY r.last_at DESC, r.id DESC LIMIT @most
);

-- name: Refusals :many
SELECT sender, what, reason, times, first_at, last_at FROM refusal
WHERE sender = ANY (@senders::text[])
ORDER BY last_at DESC, id DESC;

-- name: ForgetRefusals :exec
DELETE FROM refusal WHERE last_at < @before::timestamptz;

-- name: Organizations :many
SELECT DISTINCT organization_id FROM source ORDER BY organization_id;
