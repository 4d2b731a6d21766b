-- name: SavePayloads :exec
-- In the order of their keys. New ones are examined once like those that a row has let go: the transaction may not use them.
INSERT INTO payload (organization, digest, data, stored_at, loose)
SELECT unnest(sqlc.arg(organizations)::bigint[]), unnest(sqlc.arg(digests)::bytea[]), unnest(sqlc.arg(data)::bytea[]),
    sqlc.arg(at)::timestamptz, true
ON CONFLICT DO NOTHING;

-- name: UsePayloads :exec
-- Rows that refer to payloads: entries and generations by execution, starts by the ref of their execution, events by source and id.
-- Those that were not stored, because they existed, are left out.
INSERT INTO payload_use (organization, digest, holder, owner, seq)
SELECT used.organization, used.digest, used.holder, used.owner, used.seq
FROM (
    SELECT u.organization, u.digest, u.holder, u.seq, CASE u.holder
        WHEN 'start' THEN (SELECT e.id FROM execution e WHERE e.ref = u.ref)
        WHEN 'event' THEN (SELECT e.id FROM event e WHERE e.organization = u.organization AND e.source = u.source AND e.event_id = u.ref)
        ELSE u.execution
    END AS owner
    FROM (
        SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(digests)::bytea[]) AS digest,
            unnest(sqlc.arg(holders)::text[]) AS holder, unnest(sqlc.arg(executions)::bigint[]) AS execution,
            unnest(sqlc.arg(seqs)::bigint[]) AS seq, unnest(sqlc.arg(sources)::text[]) AS source, unnest(sqlc.arg(refs)::text[]) AS ref
    ) AS u
) AS used
WHERE used.owner IS NOT NULL
ON CONFLICT DO NOTHING;

-- name: LoadPayloads :many
SELECT p.organization, p.digest, p.data
FROM (SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(digests)::bytea[]) AS digest) AS u
JOIN payload p ON p.organization = u.organization AND p.digest = u.digest;

-- name: DropEntryPayloads :exec
-- Entries from a number on are deleted.
DELETE FROM payload_use WHERE owner = sqlc.arg(execution) AND holder = 'entry' AND seq >= sqlc.arg(seq);

-- name: CopyPayloadUses :exec
-- Uses of a new execution that has the beginning of another one's history.
INSERT INTO payload_use (organization, digest, holder, owner, seq)
SELECT u.organization, u.digest, u.holder, sqlc.arg(into_execution)::bigint, u.seq
FROM payload_use u
WHERE u.owner = sqlc.arg(source) AND u.holder IN ('start', 'generation', 'entry')
  AND (u.holder <> 'entry' OR u.seq > sqlc.arg(base)::bigint AND u.seq < sqlc.arg(before)::bigint)
ON CONFLICT DO NOTHING;

-- name: LockLoosePayloads :many
-- Nothing can begin to refer to them until the transaction ends: that takes a lock of the payload, too.
SELECT organization, digest FROM payload
WHERE loose
ORDER BY organization, digest LIMIT sqlc.arg(most)
FOR UPDATE SKIP LOCKED;

-- name: DropUnusedPayloads :exec
-- Deletes those that nothing refers to, and keeps the others until a row lets them go again.
WITH loose AS (
    SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(digests)::bytea[]) AS digest
), kept AS (
    UPDATE payload SET loose = false FROM loose l
    WHERE payload.organization = l.organization AND payload.digest = l.digest
      AND EXISTS (SELECT FROM payload_use u WHERE u.organization = l.organization AND u.digest = l.digest)
)
DELETE FROM payload USING loose l
WHERE payload.organization = l.organization AND payload.digest = l.digest
  AND NOT EXISTS (SELECT FROM payload_use u WHERE u.organization = l.organization AND u.digest = l.digest);
