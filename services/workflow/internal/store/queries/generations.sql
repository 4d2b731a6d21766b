-- name: BeginGenerations :exec
INSERT INTO generation (execution, number, base_seq, call, began_at, held_until)
SELECT u.execution, u.number, u.base_seq, u.call::json, u.at, nullif(u.held, 'epoch')
FROM (
    SELECT unnest(sqlc.arg(executions)::bigint[]) AS execution, unnest(sqlc.arg(numbers)::int[]) AS number,
        unnest(sqlc.arg(bases)::bigint[]) AS base_seq, unnest(sqlc.arg(calls)::text[]) AS call, unnest(sqlc.arg(ats)::timestamptz[]) AS at, unnest(sqlc.arg(helds)::timestamptz[]) AS held
) AS u;

-- name: HeldBack :one
-- Until when the current generation is held back; no row if it is not.
SELECT g.began_at, g.held_until::timestamptz AS held_until
FROM (SELECT began_at, held_until FROM generation WHERE execution = sqlc.arg(execution) ORDER BY number DESC LIMIT 1) AS g
WHERE g.held_until > sqlc.arg(now)::timestamptz;

-- name: CurrentGeneration :one
-- No row for a run in its first generation.
SELECT number, base_seq, call FROM generation WHERE execution = $1 ORDER BY number DESC LIMIT 1;

-- name: GenerationsOf :many
-- The generations of entries, in the order of the entries.
SELECT coalesce((
    SELECT g.number FROM generation g WHERE g.execution = sqlc.arg(execution) AND g.base_seq < u.seq ORDER BY g.base_seq DESC LIMIT 1
), 1)::int AS number
FROM (SELECT unnest(sqlc.arg(seqs)::bigint[]) AS seq) AS u
ORDER BY u.seq;

-- name: ForgetGenerations :one
-- Deletes the entries of generations that have ended, except those that made channels: a retry opens these again. An event that is
-- still stored stays consumed.
WITH old AS (
    UPDATE generation SET forgotten = true
    FROM (
        SELECT g.execution, g.number FROM generation g
        WHERE NOT g.forgotten AND g.began_at < sqlc.arg(before)
        ORDER BY g.began_at
        LIMIT 5
    ) AS o
    WHERE generation.execution = ANY (ARRAY[o.execution]) AND generation.number = o.number
    RETURNING generation.execution, generation.base_seq
), gone AS (
    DELETE FROM entry USING old
    WHERE entry.execution = ANY (ARRAY[old.execution]) AND entry.seq <= old.base_seq AND entry.kind <> 'channel'
    RETURNING entry.execution, entry.event
), payloads AS (
    DELETE FROM payload_use USING old
    WHERE payload_use.owner = ANY (ARRAY[old.execution]) AND payload_use.holder = 'entry' AND payload_use.seq <= old.base_seq
), consumed AS (
    INSERT INTO spent (execution, event)
    SELECT DISTINCT gone.execution, gone.event FROM gone JOIN event ON event.id = ANY (ARRAY[gone.event])
    ON CONFLICT DO NOTHING
)
SELECT count(*) FROM old;

-- name: NoteConsumed :exec
-- Stores up to which event executions have consumed all events of a key: up to the first one that they have not consumed, or else the
-- last one. Events are numbered in the order of their commits, so no later event has a lower number. Every key belongs to a wait that was
-- open, so all events have keys of its shape.
INSERT INTO consumed (execution, key, event)
SELECT u.execution, u.key, coalesce((
    SELECT k.event - 1 FROM event_key k
    WHERE k.key = ANY (ARRAY[u.key]) AND k.event > greatest(x.start_event, coalesce(h.event, 0))
      AND NOT EXISTS (SELECT 1 FROM entry n WHERE n.execution = u.execution AND n.event = k.event)
      AND NOT EXISTS (SELECT 1 FROM spent s WHERE s.execution = u.execution AND s.event = k.event)
    ORDER BY k.key, k.event LIMIT 1
), (
    SELECT k.event FROM event_key k WHERE k.key = ANY (ARRAY[u.key]) ORDER BY k.key DESC, k.event DESC LIMIT 1
), 0)
FROM (SELECT DISTINCT unnest(sqlc.arg(executions)::bigint[]) AS execution, unnest(sqlc.arg(keys)::bytea[]) AS key) AS u
JOIN execution x ON x.id = ANY (ARRAY[u.execution])
LEFT JOIN LATERAL (SELECT c.event FROM consumed c WHERE c.execution = u.execution AND c.key = u.key) AS h ON true
ON CONFLICT (execution, key) DO UPDATE SET event = greatest(consumed.event, excluded.event);
