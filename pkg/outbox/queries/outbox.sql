-- name: Add :exec
-- Add stores events in the order of the arrays; an event that is stored already stays as it is.
INSERT INTO outbox (source, event_id, event, receipted, lane)
SELECT unnest(sqlc.arg(sources)::text[]), unnest(sqlc.arg(event_ids)::text[]), unnest(sqlc.arg(events)::text[])::json, unnest(sqlc.arg(receipted)::boolean[]),
    unnest(sqlc.arg(lanes)::smallint[])
ON CONFLICT ON CONSTRAINT outbox_event_once DO NOTHING;

-- name: AddNumbered :exec
-- Add, which gives the places as well: each lane that it touches stays locked until the transaction ends, so that they are given in the
-- order of commits and without a gap. In a lane that another transaction holds, and behind events that have no place yet, nothing gets one:
-- the lane's sender gives them in their order, and nobody waits. Were an event added by another transaction at this moment, the place given
-- to it here would stay empty: the statement fails then.
WITH added AS (
    SELECT u.source, u.event_id, u.event, u.receipted, u.lane, u.rank,
        u.receipted AND (SELECT min(ahead.id) FROM outbox ahead WHERE ahead.lane = u.lane AND ahead.receipted AND ahead.place IS NULL) IS NULL AS numbered
    FROM (
        SELECT unnest(sqlc.arg(sources)::text[]) AS source, unnest(sqlc.arg(event_ids)::text[]) AS event_id, unnest(sqlc.arg(events)::text[])::json AS event,
            unnest(sqlc.arg(receipted)::boolean[]) AS receipted, unnest(sqlc.arg(lanes)::smallint[]) AS lane, generate_subscripts(sqlc.arg(sources)::text[], 1) AS rank
    ) AS u
    WHERE NOT EXISTS (SELECT FROM outbox there WHERE there.source = u.source AND there.event_id = u.event_id)
), wanted AS (
    SELECT added.lane, count(*) AS events FROM added WHERE added.numbered GROUP BY added.lane
), free AS (
    SELECT l.lane FROM outbox_lane l WHERE l.lane IN (SELECT w.lane FROM wanted w) FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE outbox_lane SET place = outbox_lane.place + wanted.events FROM wanted, free
    WHERE outbox_lane.lane = free.lane AND wanted.lane = free.lane RETURNING outbox_lane.lane, outbox_lane.place
)
INSERT INTO outbox (source, event_id, event, receipted, lane, place)
SELECT added.source, added.event_id, added.event, added.receipted, added.lane, CASE WHEN added.numbered
    THEN moved.place + 1 - row_number() OVER (PARTITION BY added.lane, added.numbered ORDER BY added.rank DESC) END
FROM added LEFT JOIN moved ON moved.lane = added.lane
ORDER BY added.rank;

-- name: AddNew :exec
-- AddNumbered for events that are new, which costs half as much: one that is stored already is an error. ranks say which of the receipted ones of its lane
-- each is, from 1; 0 for one that gets no place. wanted and counts say how many places which lanes need.
--
-- What is ahead in a lane without a place, because another transaction had the lane when it was added, gets its place here as well: the next
-- commit repairs what two at once have left, and the sender need not, whose transaction would have the lane when the next one comes. It is
-- left to the sender where it is much, or was sent before, and where places were given since this statement began to read (the lane is not
-- what was seen then): what it takes to have none may have one now.
WITH wanted AS (
    SELECT unnest(sqlc.arg(wanted)::smallint[]) AS lane, unnest(sqlc.arg(counts)::bigint[]) AS events
), free AS (
    SELECT l.lane FROM outbox_lane l JOIN outbox_lane seen ON seen.lane = l.lane AND seen.epoch = l.epoch AND seen.place = l.place
    WHERE l.lane = ANY (sqlc.arg(wanted)::smallint[]) AND (
        SELECT count(*) <= 100 AND coalesce(max(few.attempts), 0) = 0
        FROM (SELECT o.attempts FROM outbox o WHERE o.lane = l.lane AND o.receipted AND o.place IS NULL ORDER BY o.id LIMIT 101) AS few
    )
    FOR NO KEY UPDATE OF l SKIP LOCKED -- not where the sender is to give places, who could wait for ever
), ahead AS (
    SELECT bare.id, free.lane, row_number() OVER (PARTITION BY free.lane ORDER BY bare.id) AS rank
    FROM free CROSS JOIN LATERAL ( -- a limit, so that they are found by the lane
        SELECT o.id FROM outbox o WHERE o.lane = free.lane AND o.receipted AND o.place IS NULL ORDER BY o.id LIMIT 100
    ) AS bare
), moved AS (
    UPDATE outbox_lane SET place = outbox_lane.place + first.events + wanted.events
    FROM wanted JOIN free ON free.lane = wanted.lane CROSS JOIN LATERAL (SELECT count(*) AS events FROM ahead WHERE ahead.lane = free.lane) AS first
    WHERE outbox_lane.lane = free.lane
    RETURNING outbox_lane.lane, outbox_lane.place - wanted.events AS base, outbox_lane.place - wanted.events - first.events AS before
), repaired AS (
    UPDATE outbox SET place = moved.before + ahead.rank FROM ahead JOIN moved ON moved.lane = ahead.lane WHERE outbox.id = ahead.id
)
INSERT INTO outbox (source, event_id, event, receipted, lane, place)
SELECT u.source, u.event_id, u.event::json, u.rank > 0, u.lane, CASE WHEN u.rank > 0 THEN moved.base + u.rank END
FROM (
    SELECT unnest(sqlc.arg(sources)::text[]) AS source, unnest(sqlc.arg(event_ids)::text[]) AS event_id, unnest(sqlc.arg(events)::text[]) AS event,
        unnest(sqlc.arg(lanes)::smallint[]) AS lane, unnest(sqlc.arg(ranks)::bigint[]) AS rank
) AS u LEFT JOIN moved ON moved.lane = u.lane;

-- name: Join :one
-- Join makes this session one of the schema's senders of that name, unless one of the release before is its only one.
SELECT pg_try_advisory_lock_shared(hashtextextended(current_schema() || '/outbox/' || sqlc.arg(sender)::text, 0))::boolean;

-- name: TakeLanes :many
-- TakeLanes makes this session the only sender of those lanes that have none.
SELECT wanted.lane FROM outbox_lane AS wanted
WHERE CASE WHEN wanted.lane = ANY (sqlc.arg(lanes)::smallint[]) -- a CASE, so that no other lane is locked
    THEN pg_try_advisory_lock(hashtextextended(current_schema() || '/outbox/lane/' || wanted.lane, 0)) END;

-- name: LeaveLanes :exec
SELECT pg_advisory_unlock(hashtextextended(current_schema() || '/outbox/lane/' || wanted.lane, 0))
FROM outbox_lane AS wanted WHERE wanted.lane = ANY (sqlc.arg(lanes)::smallint[]);

-- name: LeaveAll :exec
-- LeaveAll gives up all locks of this session.
SELECT pg_advisory_unlock_all();

-- name: Listen :exec
LISTEN lockstep_outbox;

-- name: Notify :exec
-- Notify wakes the senders of this schema, wherever they run, but for the one that is named, if any.
SELECT pg_notify('lockstep_outbox', current_schema() || sqlc.arg(but)::text);

-- name: Self :one
-- Self is what the notifications of a session carry: the schema, and its process, which a pooler between has another number for.
SELECT current_schema()::text AS schema, pg_backend_pid()::integer AS process;

-- name: LockLane :one
-- LockLane keeps others from giving out places of a lane, and from confirming any, until the transaction ends.
SELECT epoch, place FROM outbox_lane WHERE lane = sqlc.arg(lane) FOR UPDATE;

-- name: HoldCursor :many
-- HoldCursor keeps others from giving out places of those lanes that it answers, until the transaction ends; it waits for nobody. It is a
-- statement of its own so that the numbering sees what the transactions before it have committed.
SELECT lane FROM outbox_lane WHERE lane = ANY (sqlc.arg(lanes)::smallint[]) ORDER BY lane FOR NO KEY UPDATE SKIP LOCKED;

-- name: HoldEpochs :exec
-- HoldEpochs keeps others from beginning a new sequence of lanes until the transaction ends. It keeps nobody from giving out places.
SELECT FROM outbox_lane WHERE lane = ANY (sqlc.arg(lanes)::smallint[]) ORDER BY lane FOR KEY SHARE;

-- name: TakeOver :exec
-- TakeOver has lanes begin with what the release before has sent of them, and nobody has confirmed: it comes before what is new.
UPDATE outbox SET position = NULL, next_attempt_at = CASE WHEN outbox.attempts > 0 THEN '-infinity' ELSE outbox.next_attempt_at END
WHERE position IS NOT NULL AND lane = ANY (sqlc.arg(lanes)::smallint[]);

-- name: Number :many
-- Number gives the next places to the oldest events of lanes that have none, and says how many there were, and the last place of each. What
-- was sent under another place, or by the release before, is due at once.
WITH fresh AS (
    SELECT oldest.id, c.place + row_number() OVER (PARTITION BY c.lane ORDER BY oldest.id) AS place
    FROM outbox_lane c CROSS JOIN LATERAL (
        SELECT o.id FROM outbox o WHERE o.lane = c.lane AND o.receipted AND o.place IS NULL ORDER BY o.id LIMIT sqlc.arg(at_most)::integer
    ) AS oldest
    WHERE c.lane = ANY (sqlc.arg(lanes)::smallint[])
), numbered AS (
    UPDATE outbox SET place = fresh.place, next_attempt_at = CASE WHEN outbox.attempts > 0 THEN '-infinity' ELSE outbox.next_attempt_at END
    FROM fresh WHERE outbox.id = fresh.id RETURNING outbox.lane, outbox.place
), last AS (
    SELECT numbered.lane, count(*)::bigint AS events, max(numbered.place)::bigint AS place FROM numbered GROUP BY numbered.lane
), moved AS (
    UPDATE outbox_lane SET place = last.place FROM last WHERE outbox_lane.lane = last.lane
)
SELECT last.lane, last.events, last.place FROM last;

-- name: State :many
-- State is the name of each lane's sequence and the last place given out.
SELECT lane, epoch, place FROM outbox_lane WHERE lane = ANY (sqlc.arg(lanes)::smallint[]);

-- name: Fresh :many
-- Fresh are the events of lanes to publish for the first time, those of each lane in the order of their places, of which those up to after are
-- known; before them come those that get no place. Each says what sequence it is in, and the lowest place of its lane that is
-- still held. Where there are events that are to get one, one of each such lane comes first, and stands for all: an outbox in which
-- nothing is new is asked this one question. The lanes take turns, so that a long one delays no other. placed and unplaced say of which
-- lanes either kind is asked for.
WITH mine AS MATERIALIZED (
    SELECT asked.lane, asked.after, asked.placed, asked.unplaced, c.epoch,
        coalesce((SELECT min(held.place) FROM outbox held WHERE held.lane = c.lane), c.place + 1)::bigint AS base
    FROM (
        SELECT unnest(sqlc.arg(lanes)::smallint[]) AS lane, unnest(sqlc.arg(afters)::bigint[]) AS after,
            unnest(sqlc.arg(placed)::boolean[]) AS placed, unnest(sqlc.arg(unplaced)::boolean[]) AS unplaced
    ) AS asked JOIN outbox_lane c ON c.lane = asked.lane
)
SELECT o.id, o.event, coalesce(o.place, 0)::bigint AS place, o.attempts, o.receipted, o.lane, mine.epoch, mine.base
FROM (
    (SELECT u.id, u.event, u.place, u.attempts, u.receipted, u.lane FROM mine m CROSS JOIN LATERAL (
         SELECT r.id, r.event, r.place, r.attempts, r.receipted, r.lane FROM outbox r
         WHERE r.lane BETWEEN m.lane AND m.lane AND NOT r.receipted AND r.next_attempt_at <= sqlc.arg(at)::timestamptz
         ORDER BY r.lane, r.id LIMIT sqlc.arg(at_most)::integer -- an order and a range that only the lane's index has
     ) AS u WHERE m.unplaced ORDER BY u.id LIMIT sqlc.arg(at_most)::integer)
    UNION ALL
    (SELECT n.id, n.event, n.place, n.attempts, n.receipted, m.lane FROM mine m CROSS JOIN LATERAL (
         SELECT f.id, f.event, f.place, f.attempts, f.receipted FROM outbox f
         WHERE f.lane = m.lane AND f.place > m.after AND f.attempts = 0 ORDER BY f.place LIMIT sqlc.arg(at_most)::integer
     ) AS n WHERE m.placed ORDER BY n.place - m.after, m.lane LIMIT sqlc.arg(at_most)::integer)
    UNION ALL
    (SELECT w.id, w.event, w.place, w.attempts, w.receipted, m.lane FROM mine m CROSS JOIN LATERAL (
         SELECT e.id, e.event, e.place, e.attempts, e.receipted FROM outbox e
         WHERE e.lane = m.lane AND e.receipted AND e.place IS NULL ORDER BY e.id LIMIT 1
     ) AS w)
) AS o
JOIN mine ON mine.lane = o.lane
ORDER BY (o.receipted AND o.place IS NULL) DESC, o.place - mine.after NULLS FIRST, o.id;

-- name: Overdue :many
-- Overdue are the events of lanes that were sent and are to be sent again, and those that should have been sent, as Fresh answers them.
-- They are searched in a window of the lowest places of each lane, so that a receiver that is away for days is not sent everything again and again.
SELECT o.id, o.event, coalesce(o.place, 0)::bigint AS place, o.attempts, o.receipted, c.lane, c.epoch, b.base
FROM (SELECT unnest(sqlc.arg(lanes)::smallint[]) AS lane, unnest(sqlc.arg(sent)::bigint[]) AS sent) AS mine
JOIN outbox_lane c ON c.lane = mine.lane
CROSS JOIN LATERAL (SELECT coalesce(min(held.place), 0)::bigint AS base FROM outbox held WHERE held.lane = mine.lane) AS b
JOIN outbox o ON o.lane = mine.lane AND o.place >= b.base AND o.place < b.base + sqlc.arg(resend_window)::bigint
WHERE (o.attempts > 0 OR o.place <= mine.sent) AND o.next_attempt_at <= sqlc.arg(at)::timestamptz
ORDER BY o.place - b.base, o.lane
LIMIT sqlc.arg(at_most)::integer;

-- name: NextOverdue :many
-- NextOverdue is when the first of those becomes due that Overdue did not find; no row if there is none.
SELECT o.next_attempt_at
FROM (SELECT unnest(sqlc.arg(lanes)::smallint[]) AS lane) AS mine
CROSS JOIN LATERAL (SELECT coalesce(min(held.place), 0)::bigint AS base FROM outbox held WHERE held.lane = mine.lane) AS b
JOIN outbox o ON o.lane = mine.lane AND o.place >= b.base AND o.place < b.base + sqlc.arg(resend_window)::bigint
WHERE o.attempts > 0
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
-- Repeat makes due at once what was published of lanes and is not confirmed. One that was never published is due when it is due.
UPDATE outbox SET next_attempt_at = sqlc.arg(at)::timestamptz
WHERE lane = ANY (sqlc.arg(lanes)::smallint[]) AND attempts > 0 AND last_error IS NULL AND next_attempt_at > sqlc.arg(at)::timestamptz;

-- name: Postpone :exec
-- Postpone notes why an event could not be published.
UPDATE outbox SET attempts = attempts + 1, next_attempt_at = sqlc.arg(next_attempt_at), last_error = sqlc.arg(reason)::text WHERE id = sqlc.arg(id);

-- name: Forget :exec
-- Forget drops events that nobody confirms, once they are published.
DELETE FROM outbox WHERE id = ANY (sqlc.arg(ids)::bigint[]);

-- name: Confirm :exec
-- Confirm raises the marks of receivers in lanes whose sequences are still those that the receipts are about (HoldEpochs).
INSERT INTO outbox_mark (lane, receiver, mark, confirmed_at)
SELECT got.lane, got.receiver, got.mark, sqlc.arg(at)::timestamptz
FROM (
    SELECT unnest(sqlc.arg(lanes)::smallint[]) AS lane, unnest(sqlc.arg(epochs)::text[]) AS epoch, unnest(sqlc.arg(receivers)::text[]) AS receiver,
        unnest(sqlc.arg(marks)::bigint[]) AS mark
) AS got JOIN outbox_lane c ON c.lane = got.lane AND c.epoch = got.epoch
ORDER BY got.lane, got.receiver
ON CONFLICT (lane, receiver) DO UPDATE SET mark = greatest(outbox_mark.mark, excluded.mark), confirmed_at = excluded.confirmed_at;

-- name: DeleteConfirmed :exec
-- DeleteConfirmed drops what every receiver given has confirmed of lanes whose sequences are still the given ones (HoldEpochs). One that has
-- never answered has confirmed nothing.
DELETE FROM outbox USING (
    SELECT mine.lane, min(coalesce(r.mark, 0)) AS mark
    FROM (SELECT DISTINCT unnest(sqlc.arg(lanes)::smallint[]) AS lane, unnest(sqlc.arg(epochs)::text[]) AS epoch) AS mine
    JOIN outbox_lane c ON c.lane = mine.lane AND c.epoch = mine.epoch
    CROSS JOIN unnest(sqlc.arg(receivers)::text[]) AS wanted (receiver)
    LEFT JOIN outbox_mark r ON r.lane = mine.lane AND r.receiver = wanted.receiver GROUP BY mine.lane
) AS confirmed
WHERE outbox.lane = confirmed.lane AND outbox.place <= confirmed.mark;

-- name: NewEpoch :exec
-- NewEpoch begins a new sequence.
UPDATE outbox_lane SET epoch = gen_random_uuid()::text, place = 0 WHERE lane = sqlc.arg(lane);

-- name: Unnumber :exec
-- Unnumber puts every event of a lane back to before it had a place.
UPDATE outbox SET place = NULL, next_attempt_at = '-infinity' WHERE lane = sqlc.arg(lane) AND place IS NOT NULL;

-- name: ForgetMarks :exec
UPDATE outbox_mark SET mark = 0 WHERE lane = sqlc.arg(lane);

-- name: Former :exec
-- Former begins a new sequence for the release before, should it run here again.
UPDATE outbox_cursor SET epoch = gen_random_uuid()::text, position = 0;

-- name: FormerPositions :exec
UPDATE outbox SET position = NULL WHERE position IS NOT NULL;

-- name: FormerMarks :exec
UPDATE outbox_receiver SET mark = 0;

-- name: Backlog :one
-- Backlog is what has not been confirmed yet, how old the oldest of it is, and in how many lanes something has waited for a minute to be sent
-- at all. It counts no further than most, so that a scrape costs little however much has piled up.
SELECT count(*)::bigint AS events, count(first.last_error)::bigint AS failing,
    count(DISTINCT first.lane) FILTER (WHERE first.attempts = 0 AND first.added_at < clock_timestamp() - '1 minute'::interval)::bigint AS waiting,
    coalesce(extract(epoch FROM clock_timestamp() - min(first.added_at)), 0)::float8 AS oldest_seconds
FROM (SELECT outbox.added_at, outbox.last_error, outbox.attempts, outbox.lane FROM outbox ORDER BY outbox.id LIMIT sqlc.arg(most)) AS first;
