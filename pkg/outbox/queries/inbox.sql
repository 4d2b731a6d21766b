-- name: Claim :one
-- Claim records that an event is applied, or refused, in this transaction, and returns how often it has come: 1 is the
-- first time. A concurrent claim of the same event waits for this transaction to end. An event that came before under
-- another position (its sender began a new sequence) takes that one, so that the new sequence has no gap.
INSERT INTO inbox (source, event_id, sender, epoch, position, base, claimed_at, rejected_reason)
VALUES (sqlc.arg(source), sqlc.arg(event_id), sqlc.narg(sender), sqlc.narg(epoch), sqlc.narg(position), sqlc.narg(base), sqlc.arg(claimed_at), sqlc.narg(rejected_reason))
ON CONFLICT ON CONSTRAINT inbox_event_once DO UPDATE SET
    claims = inbox.claims + 1, sender = excluded.sender, epoch = excluded.epoch, position = excluded.position, base = excluded.base
RETURNING claims;

-- name: ClaimEach :batchone
-- Claim for several events in one round trip, in the order given: the second of two that are the same comes second.
INSERT INTO inbox (source, event_id, sender, epoch, position, base, claimed_at, rejected_reason)
VALUES (sqlc.arg(source), sqlc.arg(event_id), sqlc.narg(sender), sqlc.narg(epoch), sqlc.narg(position), sqlc.narg(base), sqlc.arg(claimed_at), sqlc.narg(rejected_reason))
ON CONFLICT ON CONSTRAINT inbox_event_once DO UPDATE SET
    claims = inbox.claims + 1, sender = excluded.sender, epoch = excluded.epoch, position = excluded.position, base = excluded.base
RETURNING claims;

-- name: Applied :many
-- Applied are those of some events that were claimed before, and not rejected: the lists go side by side.
SELECT i.source, i.event_id
FROM (SELECT unnest(sqlc.arg(sources)::text[]) AS source, unnest(sqlc.arg(event_ids)::text[]) AS event_id) asked
JOIN inbox i ON i.source = asked.source AND i.event_id = asked.event_id AND i.rejected_reason IS NULL;

-- name: BeginMark :exec
INSERT INTO inbox_mark (sender, epoch, changed_at) VALUES (sqlc.arg(sender), sqlc.arg(epoch), sqlc.arg(changed_at)) ON CONFLICT DO NOTHING;

-- name: AdvanceMark :one
-- AdvanceMark moves the mark of a sequence over the positions that have come, as far as there is no gap. Positions
-- below the sender's base will no longer come and are no gap.
WITH start AS (
    SELECT m.sender, m.epoch, greatest(m.mark, (
        SELECT max(i.base) - 1 FROM inbox i WHERE i.sender = m.sender AND i.epoch = m.epoch AND i.position > m.mark
    ))::bigint AS mark
    FROM inbox_mark m WHERE m.sender = sqlc.arg(sender) AND m.epoch = sqlc.arg(epoch) FOR UPDATE
), above AS (
    SELECT DISTINCT i.position FROM inbox i JOIN start USING (sender, epoch) WHERE i.position > start.mark ORDER BY i.position LIMIT 5000
), ranked AS (
    SELECT position, position - row_number() OVER (ORDER BY position) AS before FROM above
)
UPDATE inbox_mark m SET mark = greatest(start.mark, (SELECT max(ranked.position) FROM ranked WHERE ranked.before = start.mark)), changed_at = sqlc.arg(changed_at)
FROM start WHERE m.sender = start.sender AND m.epoch = start.epoch
RETURNING m.mark;

-- name: Closed :many
-- Closed are the position up to which all of a sequence is closed, at least the one that is given, and behind it those that have come.
WITH m AS (
    SELECT greatest(sqlc.arg(after)::bigint, (SELECT k.mark FROM inbox_mark k WHERE k.sender = sqlc.arg(sender)::text AND k.epoch = sqlc.arg(epoch)::text))::bigint AS place
), come AS (
    SELECT DISTINCT i.position::bigint AS place FROM inbox i
    WHERE i.sender = sqlc.arg(sender)::text AND i.epoch = sqlc.arg(epoch)::text AND i.position > (SELECT m.place FROM m)
    ORDER BY place LIMIT sqlc.arg(at_most)::integer
)
SELECT m.place FROM m UNION ALL SELECT come.place FROM come ORDER BY place;

-- name: Prune :execrows
-- Prune forgets events that came so long ago that no stream can deliver them again.
DELETE FROM inbox WHERE (source, event_id) IN (
    SELECT i.source, i.event_id FROM inbox i LEFT JOIN inbox_mark m USING (sender, epoch)
    WHERE i.claimed_at < sqlc.arg(before) AND (i.position IS NULL OR i.position <= m.mark)
    ORDER BY i.claimed_at LIMIT sqlc.arg(at_most)::integer
);

-- name: Received :many
-- Received are those of some events of a source that were claimed before, also the rejected ones.
SELECT i.event_id FROM inbox i WHERE i.source = sqlc.arg(source) AND i.event_id = ANY (sqlc.arg(event_ids)::text[]);
