-- name: SaveBatch :one
INSERT INTO batch (organization, action, state, filter, reason, started_by, rate, position, created_at, next_at)
VALUES ($1, $2, 'running', $3, $4, $5, $6, $7, $8, $8)
RETURNING id;

-- name: CountRunningBatches :one
SELECT count(*) FROM batch WHERE organization = $1 AND next_at IS NOT NULL;

-- name: ForgetBatches :exec
-- Those that ended long ago, and those behind the last ones: any number may be started within a day.
DELETE FROM batch b WHERE b.organization = sqlc.arg(organization) AND b.ended_at IS NOT NULL AND (b.ended_at < sqlc.arg(before)::timestamptz
    OR b.id < (SELECT l.id FROM batch l WHERE l.organization = sqlc.arg(organization) ORDER BY l.id DESC OFFSET sqlc.arg(most) LIMIT 1));

-- name: FindBatch :one
SELECT * FROM batch WHERE organization = $1 AND id = $2;

-- name: ListBatches :many
SELECT * FROM batch WHERE organization = $1 AND id < $2 ORDER BY id DESC LIMIT $3;

-- name: TakeBatches :many
-- Takes what is due. When it comes again is set before anything is done, so that a crash does not lose it.
UPDATE batch SET next_at = sqlc.arg(again)::timestamptz
FROM (
    SELECT b.organization, b.id FROM batch b WHERE b.next_at <= sqlc.arg(now)::timestamptz ORDER BY b.next_at LIMIT sqlc.arg(most) FOR UPDATE SKIP LOCKED
) AS due
WHERE batch.organization = due.organization AND batch.id = due.id
RETURNING batch.*;

-- name: AdvanceBatch :exec
-- Stores progress, unless another process has stored more, or the batch was stopped.
UPDATE batch SET
    position = sqlc.arg(position), done = done + sqlc.arg(done)::bigint, refused = refused + sqlc.arg(refused)::bigint,
    last_refusal = CASE WHEN sqlc.arg(last_refusal)::text = '' THEN last_refusal ELSE sqlc.arg(last_refusal)::text END,
    state = CASE WHEN sqlc.arg(ended)::boolean THEN 'done' ELSE state END,
    ended_at = CASE WHEN sqlc.arg(ended)::boolean THEN sqlc.arg(now)::timestamptz END,
    next_at = CASE WHEN sqlc.arg(ended)::boolean THEN NULL ELSE sqlc.arg(next_at)::timestamptz END
WHERE organization = sqlc.arg(organization) AND id = sqlc.arg(id) AND state = 'running' AND position = sqlc.arg(was)::bigint;

-- name: StopBatch :execrows
UPDATE batch SET state = 'stopped', ended_at = sqlc.arg(now)::timestamptz, next_at = NULL
WHERE organization = sqlc.arg(organization) AND id = sqlc.arg(id) AND state = 'running';

-- name: NextBatch :one
SELECT coalesce((SELECT b.next_at FROM batch b WHERE b.next_at IS NOT NULL ORDER BY b.next_at LIMIT 1), 'epoch')::timestamptz AS at;
