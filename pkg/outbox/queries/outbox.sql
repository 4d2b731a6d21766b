-- name: Add :exec
-- Add stores events in the order of the arrays; an event that is stored already stays as it is.
INSERT INTO outbox (source, event_id, event, receipted)
SELECT unnest(sqlc.arg(sources)::text[]), unnest(sqlc.arg(event_ids)::text[]), unnest(sqlc.arg(events)::text[])::json, unnest(sqlc.arg(receipted)::boolean[])
ON CONFLICT ON CONSTRAINT outbox_event_once DO NOTHING;

-- name: AddNumbered :exec
-- Add, which gives the positions as well: the cursor stays locked until the transaction ends, so that they are given in the order of
-- commits and without a gap. While another transaction holds the cursor, and behind events that have no position yet, nothing gets one:
-- the sender gives them in their order, and nobody waits. Were an event added by another transaction at this moment, the position given to
-- it here would stay empty: the statement fails then.
WITH added AS (
    SELECT u.source, u.event_id, u.event, u.receipted, u.place, u.receipted AND (SELECT min(ahead.id) FROM outbox ahead WHERE ahead.receipted AND ahead.position IS NULL) IS NULL AS numbered
    FROM (
        SELECT unnest(sqlc.arg(sources)::text[]) AS source, unnest(sqlc.arg(event_ids)::text[]) AS event_id, unnest(sqlc.arg(events)::text[])::json AS event,
            unnest(sqlc.arg(receipted)::boolean[]) AS receipted, generate_subscripts(sqlc.arg(sources)::text[], 1) AS place
    ) AS u
    WHERE NOT EXISTS (SELECT FROM outbox there WHERE there.source = u.source AND there.event_id = u.event_id)
), moved AS (
    UPDATE outbox_cursor SET position = outbox_cursor.position + (SELECT count(*) FROM added WHERE added.numbered)
    WHERE outbox_cursor.only_row AND (SELECT free.only_row FROM outbox_cursor free WHERE free.only_row FOR UPDATE SKIP LOCKED) RETURNING outbox_cursor.position
)
INSERT INTO outbox (source, event_id, event, receipted, position)
SELECT added.source, added.event_id, added.event, added.receipted, CASE WHEN added.numbered
    THEN moved.position + 1 - row_number() OVER (PARTITION BY added.numbered ORDER BY added.place DESC) END
FROM added LEFT JOIN moved ON true
ORDER BY added.place;

-- name: AddNew :exec
-- AddNumbered for events that are new, which costs half as much: one that is stored already is an error. ranks say which of the receipted ones each is,
-- from 1; 0 for one that gets no position.
WITH moved AS (
    UPDATE outbox_cursor SET position = outbox_cursor.position + CASE WHEN a.numbered THEN sqlc.arg(positions)::bigint ELSE 0 END
    FROM (SELECT (SELECT min(ahead.id) FROM outbox ahead WHERE ahead.receipted AND ahead.position IS NULL) IS NULL AS numbered) AS a
    WHERE outbox_cursor.only_row AND (SELECT free.only_row FROM outbox_cursor free WHERE free.only_row FOR UPDATE SKIP LOCKED)
    RETURNING outbox_cursor.position - sqlc.arg(positions)::bigint AS base, a.numbered
)
INSERT INTO outbox (source, event_id, event, receipted, position)
SELECT u.source, u.event_id, u.event::json, u.rank > 0, CASE WHEN u.rank > 0 AND moved.numbered THEN moved.base + u.rank END
FROM (
    SELECT unnest(sqlc.arg(sources)::text[]) AS source, unnest(sqlc.arg(event_ids)::text[]) AS event_id, unnest(sqlc.arg(events)::text[]) AS event,
        unnest(sqlc.arg(ranks)::bigint[]) AS rank
) AS u LEFT JOIN moved ON true;

-- name: TryLock :one
-- TryLock makes this session the schema's only active sender of that name, if no other session is.
SELECT pg_try_advisory_lock(hashtextextended(current_schema() || '/outbox/' || sqlc.arg(sender)::text, 0))::boolean;

-- name: Listen :exec
LISTEN lockstep_outbox;

-- name: Notify :exec
-- Notify wakes the active sender of this schema, wherever it runs.
SELECT pg_notify('lockstep_outbox', current_schema()::text);

-- name: Schema :one
SELECT current_schema()::text;

-- name: LockCursor :one
-- LockCursor keeps other senders from giving out positions until the transaction ends.
SELECT epoch, position FROM outbox_cursor FOR UPDATE;

-- name: HoldCursor :exec
-- HoldCursor is LockCursor for the numbering, which is a statement of its own so that it sees what the transaction before it
-- has committed.
SELECT FROM outbox_cursor FOR UPDATE;

-- name: Number :one
-- Number gives the next positions to the oldest events that have none, and says how many there were, and the last position.
WITH fresh AS (
    SELECT oldest.id, outbox_cursor.position + row_number() OVER (ORDER BY oldest.id) AS position
    FROM (SELECT id FROM outbox WHERE receipted AND position IS NULL ORDER BY id LIMIT sqlc.arg(at_most)::integer) AS oldest, outbox_cursor
), numbered AS (
    UPDATE outbox SET position = fresh.position FROM fresh WHERE outbox.id = fresh.id RETURNING outbox.position
), moved AS (
    UPDATE outbox_cursor SET position = (SELECT max(numbered.position) FROM numbered) WHERE EXISTS (SELECT FROM numbered)
)
SELECT count(*)::bigint AS events, coalesce(max(numbered.position), 0)::bigint AS last FROM numbered;

-- name: State :one
-- State is the sequence's name and the last position given out.
SELECT epoch, position FROM outbox_cursor;

-- name: Fresh :many
-- Fresh are the events to publish for the first time, in the order of their positions, of which those up to after are
-- known; before them come those that get no position. Each says what sequence it is in, and the lowest position that is
-- still held. Where there are events that are to get one, the first row is one of these, and stands for all: an outbox in which
-- nothing is new is asked this one question.
SELECT o.id, o.event, coalesce(o.position, 0)::bigint AS position, o.attempts, o.receipted, c.epoch,
    coalesce((SELECT min(held.position) FROM outbox held), c.position + 1)::bigint AS base
FROM outbox_cursor c, (
    (SELECT u.id, u.event, u.position, u.attempts, u.receipted FROM outbox u
     WHERE NOT u.receipted AND u.next_attempt_at <= sqlc.arg(at)::timestamptz ORDER BY u.id LIMIT sqlc.arg(at_most)::integer)
    UNION ALL
    (SELECT n.id, n.event, n.position, n.attempts, n.receipted FROM outbox n
     WHERE n.position > sqlc.arg(after)::bigint AND n.attempts = 0 ORDER BY n.position LIMIT sqlc.arg(at_most)::integer)
    UNION ALL
    (SELECT w.id, w.event, w.position, w.attempts, w.receipted FROM outbox w
     WHERE w.receipted AND w.position IS NULL ORDER BY w.id LIMIT 1)
) AS o
ORDER BY (o.receipted AND o.position IS NULL) DESC, o.position NULLS FIRST, o.id;

-- name: Overdue :many
-- Overdue are the events that were sent and are to be sent again, and those that should have been sent, as Fresh answers them.
-- They are searched in a window of the lowest positions, so that a receiver that is away for days is not sent everything again and again.
SELECT o.id, o.event, coalesce(o.position, 0)::bigint AS position, o.attempts, o.receipted, c.epoch, b.base
FROM outbox_cursor c, (SELECT coalesce(min(held.position), 0)::bigint AS base FROM outbox held) AS b, outbox o
WHERE o.position >= b.base AND o.position < b.base + sqlc.arg(resend_window)::bigint
  AND (o.attempts > 0 OR o.position <= sqlc.arg(sent)::bigint) AND o.next_attempt_at <= sqlc.arg(at)::timestamptz
ORDER BY o.position
LIMIT sqlc.arg(at_most)::integer;

-- name: NextOverdue :many
-- NextOverdue is when the first of those becomes due that Overdue did not find; no row if there is none.
SELECT o.next_attempt_at
FROM (SELECT coalesce(min(held.position), 0)::bigint AS base FROM outbox held) AS b, outbox o
WHERE o.position >= b.base AND o.position < b.base + sqlc.arg(resend_window)::bigint AND o.attempts > 0
ORDER BY o.next_attempt_at
LIMIT 1;

-- name: Hasten :exec
-- Hasten has the commit answered before it is on the disk. A crash of the server may lose the transaction, as a whole, and nothing else.
SELECT set_config('synchronous_commit', 'off', true);

-- name: Sent :exec
-- Sent notes that events were published, and when each is to be sent again.
UPDATE outbox SET attempts = attempts + 1, next_attempt_at = sent.next_attempt_at, last_error = NULL
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(next_attempts)::timestamptz[]) AS next_attempt_at) AS sent
WHERE outbox.id = sent.id;

-- name: Repeat :exec
-- Repeat makes due at once what was published and is not confirmed. One that was never published is due when it is due.
UPDATE outbox SET next_attempt_at = sqlc.arg(at)::timestamptz WHERE attempts > 0 AND last_error IS NULL AND next_attempt_at > sqlc.arg(at)::timestamptz;

-- name: Postpone :exec
-- Postpone notes why an event could not be published.
UPDATE outbox SET attempts = attempts + 1, next_attempt_at = sqlc.arg(next_attempt_at), last_error = sqlc.arg(reason)::text WHERE id = sqlc.arg(id);

-- name: Forget :exec
-- Forget drops events that nobody confirms, once they are published.
DELETE FROM outbox WHERE id = ANY (sqlc.arg(ids)::bigint[]);

-- name: Confirm :exec
-- Confirm raises the mark of a receiver.
INSERT INTO outbox_receiver (receiver, mark, confirmed_at) VALUES (sqlc.arg(receiver), sqlc.arg(mark), sqlc.arg(at))
ON CONFLICT (receiver) DO UPDATE SET mark = greatest(outbox_receiver.mark, excluded.mark), confirmed_at = excluded.confirmed_at;

-- name: DeleteConfirmed :execrows
-- DeleteConfirmed drops what every receiver given has confirmed. One that has never answered has confirmed nothing.
DELETE FROM outbox WHERE position <= (
    SELECT min(coalesce(r.mark, 0)) FROM unnest(sqlc.arg(receivers)::text[]) AS wanted (receiver) LEFT JOIN outbox_receiver r USING (receiver)
);

-- name: NewEpoch :exec
-- NewEpoch begins a new sequence.
UPDATE outbox_cursor SET epoch = gen_random_uuid()::text, position = 0;

-- name: Unnumber :exec
-- Unnumber puts every event back to before it had a position.
UPDATE outbox SET position = NULL, next_attempt_at = '-infinity' WHERE position IS NOT NULL;

-- name: ForgetMarks :exec
UPDATE outbox_receiver SET mark = 0;

-- name: Backlog :one
-- Backlog is what has not been confirmed yet, and how old the oldest of it is. It counts no further than most, so that a scrape costs
-- little however much has piled up.
SELECT count(*)::bigint AS events, count(first.last_error)::bigint AS failing, coalesce(extract(epoch FROM clock_timestamp() - min(first.added_at)), 0)::float8 AS oldest_seconds
FROM (SELECT outbox.added_at, outbox.last_error FROM outbox ORDER BY outbox.id LIMIT sqlc.arg(most)) AS first;
